//! Checks of addresses and the pages behind them.

use super::ensure_refused;
use super::memory::{verify_pattern, write_pattern};
use crate::driver::device::CudaDevice;
use crate::driver::devices::{devices, driver_version};
use crate::driver::source::CudaSource;
use plimsoll_device::SelfTest;
use plimsoll_device::selftest::{Failure, Outcome, check, ensure, ensure_near};
use plimsoll_memory::{ErrorKind, Source, format_bytes};
use std::thread;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Tries them all.
pub(super) fn run(device: &CudaDevice, checks: &mut Vec<SelfTest>) {
    check(checks, "the device describes itself", || describe(device));
    check(checks, "addresses take no memory", || addresses_are_free(device));
    check(checks, "what is written is read back", || write_and_read(device));
    check(checks, "a range grows where it is and keeps what it holds", || grow(device));
    check(checks, "a page in the middle can be taken away and put back", || take_from_the_middle(device));
    check(checks, "the books agree with the driver's", || books(device));
    check(checks, "unmapping gives memory back to the driver", || give_back(device));
    check(checks, "wrong ranges are refused and change nothing", || wrong_ranges(device));
    check(checks, "a source works from any thread", || threads(device));
    check(checks, "more than is free is refused, and work goes on", || more_than_free(device));
    check(checks, "a device can be filled, and holds what was written", || fill(device));
    check(checks, "what mapping costs", || costs(device));
}

fn free(device: &CudaDevice) -> Result<u64, Failure> {
    Ok(device.memory_info()?.free_bytes)
}

fn describe(device: &CudaDevice) -> Outcome {
    let (major, minor) = driver_version()?;
    let all = devices()?;
    let info = all.iter().find(|info| info.id == device.id()).ok_or("it is not in the list of devices")?;
    ensure(info.virtual_memory, || format!("{} cannot map memory behind addresses", info.name))?;
    let memory = device.memory_info()?;
    ensure(memory.free_bytes <= memory.total_bytes && memory.total_bytes <= info.total_bytes, || {
        format!("{memory:?} in a device of {} bytes", info.total_bytes)
    })?;
    Ok(format!(
        "{}: {}, compute capability {}.{}, driver for CUDA {major}.{minor}, {} of {} free, pages of {}",
        device.id(),
        info.name,
        info.capability.0,
        info.capability.1,
        format_bytes(memory.free_bytes),
        format_bytes(memory.total_bytes),
        format_bytes(info.granularity_bytes)
    ))
}

fn addresses_are_free(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let before = free(device)?;
    let bytes = 1 << 40;
    let address = source.reserve(bytes)?;
    let during = free(device)?;
    source.release(address, bytes);
    ensure_near("free with 1 TiB of addresses reserved", during, before, source.page_bytes())?;
    ensure(source.reserve(u64::MAX).is_err(), || "a range of all 64 bits was reserved".into())?;
    Ok(format!("1 TiB at {address:#x}; free before {before}, while it is reserved {during}"))
}

fn write_and_read(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let address = source.reserve(8 * page)?;
    source.map(address, 4 * page)?;
    let bytes = (4 * page) as usize;
    write_pattern(device, address, bytes, 1)?;
    verify_pattern(device, address, bytes, 1)?;
    // Across the border of two pages, off any alignment.
    write_pattern(device, address + page - 3, 7, 2)?;
    verify_pattern(device, address + page - 3, 7, 2)?;
    device.fill(address, 4 * page, 0xa5)?;
    let mut found = vec![0; bytes];
    device.read(address, &mut found)?;
    ensure(found.iter().all(|&byte| byte == 0xa5), || "not all bytes were set to one value".into())?;
    Ok(format!("{bytes} bytes at {address:#x}"))
}

fn grow(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let address = source.reserve(64 * page)?;
    for step in 0..64 {
        source.map(address + step * page, page)?;
        write_pattern(device, address + step * page, page as usize, step)?;
    }
    for step in 0..64 {
        verify_pattern(device, address + step * page, page as usize, step)?;
    }
    Ok(format!("64 times {} from {address:#x} on", format_bytes(page)))
}

fn take_from_the_middle(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let address = source.reserve(8 * page)?;
    source.map(address, 8 * page)?;
    let at = |index: u64| address + index * page;
    for index in 0..8 {
        write_pattern(device, at(index), page as usize, 100 + index)?;
    }
    let before = free(device)?;
    source.unmap(at(3), 2 * page);
    ensure_near("free after two pages were unmapped", free(device)?, before + 2 * page, page)?;
    let gone = device.read(at(3), &mut [0]);
    let gone = gone.err().ok_or("a page that was unmapped was read")?;
    for index in [0, 1, 2, 5, 6, 7] {
        verify_pattern(device, at(index), page as usize, 100 + index)?;
    }
    source.map(at(3), 2 * page)?;
    for index in 3..5 {
        write_pattern(device, at(index), page as usize, 200 + index)?;
    }
    for index in 0..8 {
        let seed = if (3..5).contains(&index) { 200 } else { 100 } + index;
        verify_pattern(device, at(index), page as usize, seed)?;
    }
    Ok(format!("2 of 8 pages; reading them meanwhile: {gone}"))
}

fn books(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let bytes = GIB;
    let address = source.reserve(bytes)?;
    // What the driver takes for its own tables, it takes once.
    source.map(address, bytes)?;
    source.unmap(address, bytes);
    let (before, ours) = (free(device)?, device.mapped_bytes());
    source.map(address, bytes)?;
    let (during, mapped) = (free(device)?, device.mapped_bytes() - ours);
    ensure(mapped == bytes, || format!("{mapped} bytes are in the books, and {bytes} were mapped"))?;
    ensure_near("what the driver counts as taken", before.saturating_sub(during), bytes, page)?;
    drop(source);
    let (after, left) = (free(device)?, device.mapped_bytes() - ours);
    ensure(left == 0, || format!("{left} bytes are in the books after the source was dropped"))?;
    ensure_near("free after the source was dropped", after, before, page)?;
    Ok(format!("{bytes} mapped: free before {before}, then {during}, after {after}"))
}

fn give_back(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let address = source.reserve(GIB)?;
    let first = free(device)?;
    let mut seen = Vec::new();
    for round in 0..5 {
        source.map(address, GIB)?;
        write_pattern(device, address + GIB - page, page as usize, round)?;
        source.unmap(address, GIB);
        seen.push(free(device)?);
    }
    for &after in &seen[1..] {
        ensure_near("free after mapping and unmapping again", after, seen[0], page)?;
    }
    Ok(format!("free before {first}, after each of five rounds of 1 GiB {seen:?}"))
}

fn wrong_ranges(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::new(device)?;
    let page = source.page_bytes();
    let address = source.reserve(4 * page)?;
    source.map(address, page)?;
    write_pattern(device, address, page as usize, 7)?;
    let (before, host) = (device.mapped_bytes(), [0u8; 16]);
    let mut said = String::new();
    for (what, at, bytes) in [
        ("mapping a page again", address, 2 * page),
        ("mapping part of a page", address + page, page / 2),
        ("mapping off a page's border", address + page + 1, page),
        ("mapping past the end", address + 3 * page, 2 * page),
        ("mapping what was never reserved", 0, page),
    ] {
        said = ensure_refused(what, source.map(at, bytes), &[ErrorKind::Device])?;
    }
    for (what, at) in [
        ("writing where nothing is mapped", address + page),
        ("writing across the end of what is mapped", address + page - 8),
        ("writing to the host's memory", host.as_ptr() as u64),
    ] {
        ensure(device.write(at, &[1; 16]).is_err(), || format!("{what} was not refused"))?;
    }
    source.unmap(address + page, 3 * page);
    source.release(address + page, page);
    ensure(device.mapped_bytes() == before, || format!("{} bytes are mapped now", device.mapped_bytes()))?;
    verify_pattern(device, address, page as usize, 7)?;
    Ok(format!("such as: {said}"))
}

fn threads(device: &CudaDevice) -> Outcome {
    let work = |seed: u64| -> Outcome {
        let mut source = CudaSource::new(device)?;
        let page = source.page_bytes();
        let address = source.reserve(16 * page)?;
        for step in 0..16 {
            source.map(address + step * page, page)?;
            write_pattern(device, address + step * page, page as usize, seed + step)?;
        }
        for step in 0..16 {
            verify_pattern(device, address + step * page, page as usize, seed + step)?;
        }
        Ok(String::new())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|index| scope.spawn(move || work(1000 * index))).collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome.map(drop),
            Err(_) => Err(Failure("a thread panicked".into())),
        })
    })?;
    Ok("4 threads, 16 pages each".into())
}

fn more_than_free(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::with_page_bytes(device, 64 * MIB)?;
    let page = source.page_bytes();
    let total = device.memory_info()?.total_bytes;
    let address = source.reserve(total + 2 * GIB)?;
    source.map(address, page)?;
    write_pattern(device, address, page as usize, 11)?;
    let before = free(device)?;
    let bytes = (before + GIB).next_multiple_of(page);
    let said =
        ensure_refused("more than is free", source.map(address + page, bytes), &[ErrorKind::OutOfMemory])?;
    let after = free(device)?;
    ensure_near("free after it was refused", after, before, 2 * source.page_bytes())?;
    verify_pattern(device, address, page as usize, 11)?;
    source.map(address + page, page)?;
    write_pattern(device, address + page, page as usize, 12)?;
    verify_pattern(device, address + page, page as usize, 12)?;
    Ok(format!("free before {before}, after {after}; {said}"))
}

fn fill(device: &CudaDevice) -> Outcome {
    let mut source = CudaSource::with_page_bytes(device, 64 * MIB)?;
    let (page, sample) = (source.page_bytes(), 4096);
    let before = free(device)?;
    let address = source.reserve(before + GIB)?;
    let mut pages = 0;
    let refusal = loop {
        match source.map(address + pages * page, page) {
            Ok(()) => pages += 1,
            Err(error) => break error,
        }
        write_pattern(device, address + pages * page - sample as u64, sample, pages)?;
        ensure(pages * page <= before, || "more was mapped than was free".into())?;
    };
    let left = free(device)?;
    for index in 1..=pages {
        verify_pattern(device, address + index * page - sample as u64, sample, index)?;
    }
    source.release(address, before + GIB);
    let after = free(device)?;
    ensure(refusal.kind() == ErrorKind::OutOfMemory, || format!("the end was not clear: {refusal}"))?;
    ensure_near("free after all was given back", after, before, page)?;
    Ok(format!(
        "{pages} pages of {} ({}) of {before} free, {left} left; free after {after}; then: {refusal}",
        format_bytes(page),
        format_bytes(pages * page)
    ))
}

fn costs(device: &CudaDevice) -> Outcome {
    let mut said = Vec::new();
    for page in [2 * MIB, 32 * MIB, 256 * MIB] {
        let mut source = CudaSource::with_page_bytes(device, page)?;
        let address = source.reserve(GIB)?;
        let start = Instant::now();
        source.map(address, GIB)?;
        let mapped = start.elapsed().as_secs_f64();
        let start = Instant::now();
        source.unmap(address, GIB);
        let unmapped = start.elapsed().as_secs_f64();
        let count = (GIB / source.page_bytes()) as f64;
        said.push(format!(
            "pages of {}: 1 GiB mapped in {:.1} ms ({:.1} µs a page), unmapped in {:.1} ms ({:.1} µs a page)",
            format_bytes(source.page_bytes()),
            mapped * 1e3,
            mapped * 1e6 / count,
            unmapped * 1e3,
            unmapped * 1e6 / count
        ));
    }
    let (start, rounds) = (Instant::now(), 100);
    for _ in 0..rounds {
        device.memory_info()?;
    }
    said.push(format!(
        "asking what is free {:.1} µs",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    ));
    Ok(said.join("; "))
}
