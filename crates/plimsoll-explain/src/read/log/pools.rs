//! Pools of TensorFlow and JAX as devices: the dump, the error, the pool as it was set up and printed figures, made one.

use super::Log;
use super::bfc::{self, Dump, PoolDumps};
use super::parse::Size;
use super::xla::{self, ListedBuffer};
use crate::program::{Backend, Platform};
use crate::recording::{Device, Failure, Format, Framework, Recording};
use crate::sign::{Sign, SignKind};
use plimsoll_memory::{BfcSettings, Model, OwnerId, Owners, format_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether an allocator is of the host's memory: `cpu`, `mklcpu`, `cuda_host_bfc`, `gpu_host_bfc`, `xla_gpu_host_bfc`.
fn is_the_hosts(allocator: &str) -> bool {
    allocator.ends_with("cpu") || allocator.contains("host_bfc")
}

impl Log {
    pub(super) fn bfc(&mut self) -> Recording {
        let framework = self.runtime_framework();
        let pools = std::mem::take(&mut self.dumps.pools);
        let alone = pools.len() <= 1;
        let mut devices: Vec<Device> = Vec::new();
        for (_, pool) in pools {
            if let Some(device) = self.pool(pool, alone, framework) {
                devices.push(device);
            }
        }
        if devices.is_empty() {
            devices.extend(self.without_dump(framework));
        }
        let program = self.clues.of_tensorflow();
        for device in &mut devices {
            device.program.complete(&program);
            if is_the_hosts(&device.name) {
                device.program.backend = Some(Backend::Cpu);
            }
            // DirectML runs on any vendor's device.
            if device.name.starts_with("Dml") {
                device.program.backend = Some(Backend::Other);
                device.program.platform = Some(Platform::Windows);
            }
        }
        self.recording(Format::BfcLog, framework, devices)
    }

    /// The device of a pool, from the last dump that is whole.
    fn pool(&mut self, pool: PoolDumps, alone: bool, framework: Framework) -> Option<Device> {
        let PoolDumps { count, complete, partial, first_live } = pool;
        if let (Some(partial), Some(complete)) = (&partial, &complete) {
            self.gaps.push(format!(
                "The dump at line {} is cut short; the one before it, at line {}, is explained.",
                partial.line, complete.line
            ));
        } else if let Some(partial) = &partial {
            self.partial = true;
            self.gaps.push(format!(
                "The dump at line {} is cut short: what it says of the pool is partial.",
                partial.line
            ));
        }
        let mut dump = complete.or(partial)?;
        if count > 1 {
            let grown = first_live.zip(dump.live()).map_or(String::new(), |(first, last)| {
                format!("; in use were {} at the first and {} at that one", show(first), show(last))
            });
            self.gaps.push(format!(
                "The log holds {count} dumps of {}; the last whole one, at line {}, is explained{grown}.",
                if dump.allocator.is_empty() { "the pool" } else { &dump.allocator },
                dump.line
            ));
        }
        Some(self.device(&mut dump, alone, framework))
    }

    fn device(&mut self, dump: &mut Dump, alone: bool, framework: Framework) -> Device {
        let state = dump.state();
        self.gaps.extend(state.gap);
        let runtime = &self.runtime;
        let exhausted = runtime.exhausted.clone().filter(|exhausted| {
            alone || exhausted.allocator.as_deref().is_some_and(|name| name == dump.allocator)
        });
        if dump.allocator.is_empty()
            && let Some(name) = exhausted.as_ref().and_then(|exhausted| exhausted.allocator.clone())
        {
            dump.allocator = name;
        }
        let index = bfc::device_of(&dump.allocator).or_else(|| exhausted.as_ref().and_then(|e| e.device));
        let set_up = runtime.pools.get(&index.unwrap_or(0)).copied();
        let stats = runtime.stats.clone().filter(|_| alone).unwrap_or_default();
        // A figure that was rounded for print is replaced by one to the byte that prints the same.
        let exact = |stated: Option<Size>, others: &[Option<u64>]| {
            let same = |stated: Size| others.iter().flatten().copied().find(|&bytes| stated.may_be(bytes));
            match stated {
                Some(stated) if stated.exact => Some(stated.bytes),
                Some(stated) => same(stated).or(Some(stated.bytes)),
                None => others.iter().flatten().next().copied(),
            }
        };
        let set_up_bytes = set_up.filter(|(size, _)| size.exact).map(|(size, _)| size.bytes);
        let reserved = exact(state.reserved, &[set_up_bytes, stats.pool]);
        let limit =
            exact(dump.limit, &[set_up_bytes, stats.limit, reserved.filter(|_| dump.growth == Some(false))]);
        let limit = limit.or(set_up.map(|(size, _)| size.bytes));
        let regions = state.layout.as_ref().map(|layout| layout.segments.len());
        let growth =
            dump.growth.or(set_up.filter(|(size, _)| size.exact).map(|(_, taken)| !taken)).or_else(|| {
                // One region as large as the limit was taken at the start; several were taken one by one.
                let (reserved, limit) = (reserved?, limit?);
                Some(regions.is_some_and(|count| count > 1) || reserved < limit - limit / 64)
            });
        let mut owners = std::mem::take(&mut dump.owners);
        let mut live_by_owner = state.live_by_owner;
        let mut planned = false;
        if state.layout.is_none() && live_by_owner.iter().all(|(owner, ..)| *owner == OwnerId::UNKNOWN) {
            let (listed, is_planned) = self.listed(&mut owners, live_by_owner.is_empty());
            planned = is_planned;
            live_by_owner = if listed.is_empty() { live_by_owner } else { listed };
        }
        let failure = self.failure(dump, exhausted.as_ref());
        let sign = failure.is_none().then(|| {
            self.gaps.push(format!(
                "The dump at line {} was written because a request was refused; which one, the log does not say.",
                dump.line
            ));
            let quote = "an allocator's dump".to_string();
            Sign { kind: SignKind::DeviceFull, quote, line: dump.line, needed: None, available: None }
        });
        Device {
            sign,
            picture: dump.picture,
            program_bytes: self.runtime.program_bytes,
            name: if dump.allocator.is_empty() { "BFC pool".into() } else { dump.allocator.clone() },
            index,
            capacity: self.runtime.capacity.map(|size| size.bytes),
            limit,
            reserved,
            live: state.live.map(|size| size.bytes),
            peak_live: exact(dump.peak, &[stats.peak, state.live.map(|size| size.bytes)]),
            largest_free: state.largest_free.map(|size| size.bytes),
            model: growth.map(|growth| model(growth, framework)),
            layout: state.layout,
            failure,
            owners: Arc::new(owners),
            live_by_owner,
            // Without figures of the pool, the list is all that tells what is in use, and a plan tells nothing of that.
            reported_at_peak: planned && state.live.is_none(),
            ..Device::default()
        }
    }

    /// What the log lists as held, by owner: tensors in use, or the buffers that XLA planned.
    /// Whether it is the latter is said, too.
    fn listed(&mut self, owners: &mut Owners, planned: bool) -> (Vec<(OwnerId, u64, u64)>, bool) {
        if self.runtime.usage.is_empty() && planned && !self.runtime.buffers.is_empty() {
            self.gaps.push(
                "The buffers that the compiler planned are what XLA's program would have held at its peak, as its buffer \
                 assignment printed them."
                    .into(),
            );
            return (held(&self.runtime.buffers, owners), true);
        }
        (held(&self.runtime.usage, owners), false)
    }

    /// What was refused: the dump knows it to the byte, the error knows who asked.
    fn failure(&self, dump: &Dump, exhausted: Option<&xla::Exhausted>) -> Option<Failure> {
        let of_shape = |stated: Option<Size>| {
            // An older wording gives a tensor's shape without its type.
            let elements = exhausted?.elements?;
            let sizes = [4, 8, 2, 1, 16].into_iter().filter_map(|bytes| elements.checked_mul(bytes));
            sizes.map(Size::exact).find(|size| stated.is_some_and(|stated| stated.may_be(size.bytes)))
        };
        let asked = match (dump.asked, exhausted) {
            (Some(asked), _) if asked.exact => asked,
            (asked, Some(exhausted)) if exhausted.elements.is_some() => of_shape(asked).or(asked)?,
            (Some(asked), Some(exhausted))
                if exhausted.asked.exact && asked.may_be(exhausted.asked.bytes) =>
            {
                exhausted.asked
            }
            (Some(asked), _) => asked,
            (None, Some(exhausted)) => exhausted.asked,
            (None, None) => return None,
        };
        let op = dump.op.clone().or_else(|| exhausted.and_then(|exhausted| exhausted.op.clone()));
        let op = op.or_else(|| exhausted.and_then(|_| self.traceback.innermost()));
        Some(Failure { requested: asked.bytes, exact: asked.exact, event: None, op })
    }

    /// What is known where no dump was written: the error, the pool as it was set up, printed figures.
    fn without_dump(&mut self, framework: Framework) -> Option<Device> {
        let refused = self.runtime.exhausted.clone();
        let exhausted = refused.clone().filter(|e| e.elements.is_none() && e.asked.bytes > 0);
        let sign = |quote: String, line| Sign {
            kind: SignKind::DeviceFull,
            quote,
            line,
            needed: None,
            available: None,
        };
        // A shape without a type, or no size at all.
        let sign = match (&exhausted, refused, &self.runtime.without_size) {
            (Some(_), ..) => None,
            (None, Some(refused), _) => {
                let elements = refused.elements.unwrap_or(0);
                Some(sign(format!("a tensor of {elements} elements was refused"), refused.at))
            }
            (None, None, Some((quote, at))) => Some(sign(quote.clone(), *at)),
            (None, None, None) => None,
        };
        if exhausted.is_none() && sign.is_none() && self.runtime.stats.is_none() {
            return None;
        }
        if self.cut {
            self.partial = true;
            self.gaps.push("The log ends within a line, and what came after may have said more.".into());
        }
        let stats = self.runtime.stats.clone().unwrap_or_default();
        let index = exhausted.as_ref().and_then(|exhausted| exhausted.device);
        let set_up = self.runtime.pools.get(&index.unwrap_or(0)).copied();
        let name = exhausted.as_ref().and_then(|exhausted| exhausted.allocator.clone());
        let failure = exhausted.map(|exhausted| Failure {
            requested: exhausted.asked.bytes,
            exact: exhausted.asked.exact,
            event: None,
            op: exhausted.op.or_else(|| self.traceback.innermost()),
        });
        let mut device = Device {
            name: name.unwrap_or_else(|| index.map_or("device".into(), |index| format!("device {index}"))),
            index: Some(index.unwrap_or(0)),
            capacity: self.runtime.capacity.map(|size| size.bytes),
            limit: stats.limit.or(set_up.map(|(size, _)| size.bytes)),
            reserved: stats.pool.or(set_up.filter(|(_, taken)| *taken).map(|(size, _)| size.bytes)),
            live: stats.live,
            peak_live: stats.peak,
            largest_free: stats.largest_free,
            failure,
            sign,
            program_bytes: self.runtime.program_bytes,
            ..Device::default()
        };
        if device.name == "TPU hbm" {
            device.program.backend = Some(crate::program::Backend::Tpu);
            device.program_bytes = device.failure.as_ref().map(|failure| failure.requested);
        }
        let growth = set_up.filter(|(size, _)| size.exact).map(|(_, taken)| !taken);
        let growth = growth.or(stats.pool.zip(stats.limit).map(|(pool, limit)| pool < limit));
        device.model = growth.map(|growth| model(growth, framework));
        let (listed, planned) = self.listed(Arc::make_mut(&mut device.owners), true);
        device.live_by_owner = listed;
        device.reported_at_peak = planned && device.live.is_none();
        Some(device)
    }
}

/// The allocator's rules. TensorFlow gives empty regions back before it gives up; XLA's runtime does not, and
/// divides a pool that does not grow.
fn model(growth: bool, framework: Framework) -> Model {
    let tensorflow = framework == Framework::TensorFlow;
    Model::Bfc(BfcSettings { growth, garbage_collection: tensorflow, partitioned: !tensorflow && !growth })
}

/// A list of what is held, by owner.
fn held(list: &[ListedBuffer], owners: &mut Owners) -> Vec<(OwnerId, u64, u64)> {
    let mut sums: BTreeMap<OwnerId, (u64, u64)> = BTreeMap::new();
    for ListedBuffer { frame, bytes } in list {
        let (sum, count) = sums.entry(owners.child(OwnerId::UNKNOWN, frame.clone())).or_default();
        *sum = sum.saturating_add(*bytes);
        *count += 1;
    }
    sums.into_iter().map(|(owner, (bytes, count))| (owner, bytes, count)).collect()
}

fn show(size: Size) -> String {
    if size.exact { format!("{} bytes", size.bytes) } else { format_bytes(size.bytes) }
}
