//! Ctrl-C and SIGTERM while training: the step that is under way is finished, a checkpoint saved, and training ends to go on
//! at another time. A second signal ends the program at once.

use plimsoll::{Control, Observer, Progress, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signals that came.
#[derive(Clone)]
pub(crate) struct Signals {
    /// The number of the last one; 0 if there was none.
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Listens to signals from now on.
    pub(crate) fn listen() -> io::Result<Signals> {
        let (last, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: only a signal that comes after another finds the flag set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&last), signal as usize)?;
        }
        Ok(Signals { last })
    }

    /// The status of a program that a signal has ended, if one came.
    pub(crate) fn status(&self) -> Option<u8> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(128 + signal).ok(),
        }
    }
}

impl Observer for Signals {
    fn step(&mut self, _: &Progress<'_>, control: &mut Control) -> Result<()> {
        match self.last.load(Ordering::Relaxed) as i32 {
            0 => {}
            SIGINT => control.interrupt("interrupted by Ctrl-C"),
            _ => control.interrupt("terminated by a signal"),
        }
        Ok(())
    }
}

/// What a command returns that a signal has ended.
#[derive(Debug)]
pub(crate) struct Interrupted {
    /// The status to exit with.
    pub(crate) status: u8,
    /// What there is to say.
    pub(crate) message: String,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Interrupted {}
