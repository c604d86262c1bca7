//! Running a program as if nothing stood between it and whoever started this: its terminal is ours, and so are signals.

use std::io;
use std::process::{Command, ExitStatus};

/// Runs a program to its end. Signals that are sent to this process are passed on to it.
#[cfg(unix)]
pub(super) fn run(program: &mut Command) -> io::Result<(u32, ExitStatus)> {
    // Before there is a program: one that is asked to end at once must not outlive this.
    forward::begin();
    let mut child = program.spawn()?;
    forward::to(child.id());
    let status = child.wait();
    forward::end();
    Ok((child.id(), status?))
}

/// Runs a program to its end.
#[cfg(not(unix))]
pub(super) fn run(program: &mut Command) -> io::Result<(u32, ExitStatus)> {
    let mut child = program.spawn()?;
    Ok((child.id(), child.wait()?))
}

/// The most memory that one process among those that ran had, where the system tells.
#[cfg(unix)]
pub(super) fn largest_resident_bytes() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory for one `rusage`, which is zeroed, a valid value of it.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).ok()?.checked_mul(unit)
}

/// The most memory that one process among those that ran had, where the system tells.
#[cfg(not(unix))]
pub(super) fn largest_resident_bytes() -> Option<u64> {
    None
}

#[cfg(unix)]
mod forward {
    use std::sync::atomic::{AtomicI32, Ordering};

    /// Who gets signals; 0 is nobody.
    static CHILD: AtomicI32 = AtomicI32::new(0);

    /// The last signal that came while there was nobody to get it; 0 is none.
    static WAITING: AtomicI32 = AtomicI32::new(0);

    /// Signals that ask a program to end, or that schedulers tell it something by.
    const SIGNALS: [libc::c_int; 6] =
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

    /// Catches signals from now on.
    pub(super) fn begin() {
        for signal in SIGNALS {
            // SAFETY: an all-zero `sigaction` is a valid value; `pass_on` has the signature that SA_SIGINFO asks for, and
            // does only what a handler may: it reads and writes atomic numbers and calls `kill`.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = pass_on as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }

    /// Passes signals on to a child, one that came before it was there included.
    pub(super) fn to(child: u32) {
        let child = i32::try_from(child).unwrap_or(0);
        CHILD.store(child, Ordering::SeqCst);
        let signal = WAITING.swap(0, Ordering::SeqCst);
        if signal != 0 && child > 0 {
            // SAFETY: it takes no pointers; the child was not waited for yet, so that its number is its own.
            unsafe { libc::kill(child, signal) };
        }
    }

    /// The child has ended: its number may be another's.
    pub(super) fn end() {
        CHILD.store(0, Ordering::SeqCst);
    }

    extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system gives a handler with SA_SIGINFO a valid `siginfo_t`.
        let code = unsafe { (*info).si_code };
        let child = CHILD.load(Ordering::SeqCst);
        // What comes from a terminal has a positive code, and goes to the child too: passed on, it would come twice.
        match code {
            1.. => {}
            _ if child > 0 => {
                // SAFETY: it takes no pointers, and may be called from a handler.
                unsafe { libc::kill(child, signal) };
            }
            _ => WAITING.store(signal, Ordering::SeqCst),
        }
    }
}
