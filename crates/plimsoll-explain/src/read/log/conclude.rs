//! What a log comes to when all of it is read: which of the messages in it is the failure, and what the others are to it.

use super::Log;
use super::found::{Found, Weight};
use crate::error::{Error, ErrorKind, Result};
use crate::recording::{Device, Format, Framework, Origin, Recording};
use crate::sign::SignKind;

impl Log {
    /// Whose pool the runtime's messages are of.
    pub(super) fn runtime_framework(&self) -> Framework {
        match (self.runtime.jax, self.runtime.tensorflow) {
            (true, false) => Framework::Jax,
            (false, true) => Framework::TensorFlow,
            _ => Framework::TensorFlowOrJax,
        }
    }

    /// The recording of what was found.
    pub(super) fn finish(mut self, lines: u64) -> Result<Recording> {
        self.messages.end_of_log();
        self.dumps.finish();
        let torch_at = self.messages.found.iter().map(|message| message.at).max();
        let bfc_at =
            self.runtime.exhausted.as_ref().map(|e| e.at).into_iter().chain(Some(self.refused_at)).max();
        let bfc_at = bfc_at.filter(|&at| at > 0);
        let mut best = self.best_found();
        let outright = best.as_ref().is_some_and(|found| found.weight > Weight::Hint);
        let refused = bfc_at.is_some() || self.runtime.without_size.is_some() && !outright;
        let has_bfc = refused || self.runtime.stats.is_some() && !outright;
        let own_limit = self.own_limit.take();
        let mut recording = match torch_at {
            Some(torch_at) if !has_bfc || Some(torch_at) > bfc_at => {
                if has_bfc {
                    self.gaps
                        .push("The log also speaks of TensorFlow's or JAX's pool; that is left out.".into());
                }
                self.note(best.as_ref());
                self.torch()
            }
            Some(_) => {
                self.gaps
                    .push("The log also holds an out-of-memory message of PyTorch; that is left out.".into());
                self.bfc()
            }
            None if has_bfc => {
                self.note(best.as_ref());
                self.bfc()
            }
            None => {
                if !outright {
                    best = self.warned().or(best);
                }
                self.said_outright(best)
            }
        };
        if let Some(own_limit) = own_limit {
            recording.devices.iter_mut().for_each(|device| own_limit.explain(device));
        }
        if recording.devices.is_empty() {
            return Err(nothing(lines));
        }
        Ok(recording)
    }

    /// The finding that counts: the one that says most, and of those the first.
    pub(super) fn best_found(&self) -> Option<Found> {
        let sized = |found: &Found| found.device.failure.is_some();
        self.found.iter().rev().max_by_key(|found| (found.weight, sized(found))).cloned()
    }

    /// Says that something else is in the log, which may have to do with it.
    fn note(&mut self, found: Option<&Found>) {
        let Some(sign) =
            found.filter(|found| found.weight == Weight::Cause).and_then(|f| f.device.sign.as_ref())
        else {
            return;
        };
        if self.messages.found.iter().all(|message| message.at != sign.line) {
            self.gaps.push(format!("Line {} also says: {}", sign.line, sign.quote));
        }
    }

    /// What is left if nothing failed: requests that were tried again with less, and warnings.
    fn warned(&self) -> Option<Found> {
        let framework = self.runtime_framework();
        if let Some(driver) = &self.runtime.driver {
            // Logged as an error until TensorFlow 2.1; later as information, since less is tried next.
            let kind = if self.runtime.driver_is_error { SignKind::Reservation } else { SignKind::Warning };
            let asked = self.runtime.driver_least.unwrap_or(driver.asked.bytes);
            let quote = format!(
                "the device refused {} to the pool",
                plimsoll_memory::format_bytes(driver.asked.bytes)
            );
            let mut found =
                Found::sign(kind, "GPU", &quote, driver.at).by(framework).bytes(Some(asked), None);
            found.device.capacity = self.runtime.capacity.map(|size| size.bytes);
            return Some(found);
        }
        let (quote, at) = self.runtime.not_a_failure.as_ref()?;
        Some(Found::sign(SignKind::Warning, "GPU", quote, *at).by(framework))
    }

    /// The recording of what is said outright.
    fn said_outright(&mut self, found: Option<Found>) -> Recording {
        let Some(Found { mut framework, mut device, .. }) = found else {
            return self.recording(Format::Log, Framework::Unknown, Vec::new());
        };
        let open = matches!(framework, Framework::Unknown | Framework::TensorFlowOrJax);
        if open && (self.runtime.jax || self.runtime.tensorflow) {
            framework = self.runtime_framework();
        }
        if let Some(sign) = &mut device.sign
            && sign.kind == SignKind::DeviceFull
            && self.clues.makes_context
            && device.failure.is_none()
        {
            sign.kind = SignKind::NoContext;
        }
        if framework == Framework::Unknown && device.name != "host" {
            framework = self.clues.framework().unwrap_or(framework);
        }
        let program = match framework {
            Framework::PyTorch => self.clues.of_torch(),
            Framework::TensorFlow | Framework::TensorFlowOrJax => self.clues.of_tensorflow(),
            _ => self.clues.of_any(),
        };
        device.program.complete(&program);
        if let Some(failure) = &mut device.failure {
            failure.op = self.traceback.innermost().or(failure.op.take());
        }
        self.add_table(&mut device);
        self.note_growth();
        self.recording(Format::Log, framework, vec![device])
    }

    /// Adds who holds the device, where a table beside the error shows that.
    fn add_table(&mut self, device: &mut Device) {
        if let Some(share) = self.tables.share.filter(|&share| share >= 25) {
            self.gaps.push(format!(
                "A table above the error shows {share} % of device 0's memory in use: by others, if this program had not begun."
            ));
        }
        let Some(shown) = self.tables.devices.get(&device.index.unwrap_or(0)) else { return };
        if shown.total > 0 && shown.used < shown.total / 20 && shown.processes.is_empty() {
            self.gaps.push(format!(
                "A table beside the error shows {} of the device's {} in use: if the program did not run then, it fills the device by itself.",
                plimsoll_memory::format_bytes(shown.used),
                plimsoll_memory::format_bytes(shown.total)
            ));
        }
        if device.others.is_empty() && device.failure.is_none() {
            device.capacity = device.capacity.or(Some(shown.total)).filter(|&total| total > 0);
            device.others = shown.processes.clone();
            // A table below the error may show this program; one above it shows what was there before.
            // Where several were pasted, they are of the program as it runs.
            let once = self.tables.used.len() <= 1;
            if device.others.is_empty() && shown.before && once && shown.used > 0 && shown.used <= shown.total
            {
                device.others = vec![("in use before (by whom was not listed)".into(), shown.used)];
            }
        }
    }

    /// Says that what a device holds grew from table to table.
    fn note_growth(&mut self) {
        let used = &self.tables.used;
        if used.len() >= 3
            && used.is_sorted()
            && used.last().zip(used.first()).is_some_and(|(last, first)| *last > first * 2)
        {
            let used: Vec<String> = used.iter().map(|&bytes| plimsoll_memory::format_bytes(bytes)).collect();
            self.gaps.push(format!(
                "Tables in the log show the device's memory in use grow: {}. If each step adds to it, something keeps what the \
                 steps make: results with their graphs, or an evaluation without torch.no_grad().",
                used.join(", ")
            ));
        }
    }

    pub(super) fn recording(
        &mut self,
        format: Format,
        framework: Framework,
        mut devices: Vec<Device>,
    ) -> Recording {
        devices.iter_mut().for_each(|device| device.failed_at = self.time.clone());
        let gaps = std::mem::take(&mut self.gaps);
        let origin =
            Origin { files: Vec::new(), formats: vec![format], framework, gaps, partial: self.partial };
        Recording { origin, devices }
    }

    fn torch(&mut self) -> Recording {
        let mut messages = std::mem::take(&mut self.messages.found);
        messages.sort_by_key(|message| message.at);
        if self.messages.count > messages.len() as u64 {
            let at = messages.iter().map(|message| message.at.to_string()).collect::<Vec<_>>().join(", ");
            self.gaps.push(format!(
                "The log holds {} out-of-memory messages; the last of each device is explained (line {at}).",
                self.messages.count
            ));
        }
        if messages.iter().any(|message| message.cut) {
            self.partial = true;
            self.gaps.push(
                "The log ends within an out-of-memory message: the figures after that are missing.".into(),
            );
        }
        let program = self.clues.of_torch();
        let with_program = |mut device: Device| {
            device.program.complete(&program);
            device
        };
        let devices = messages.into_iter().map(|message| with_program(message.device)).collect();
        self.recording(Format::TorchMessage, Framework::PyTorch, devices)
    }
}

fn nothing(lines: u64) -> Error {
    let message = format!(
        "is text of {lines} lines in which nothing about a device's memory or the host's was found: no error, warning or dump of PyTorch, \
         TensorFlow, JAX, a server, a driver or the operating system. If the program ended without a word, look for \
         `Killed process` in `sudo dmesg`"
    );
    Error::new(ErrorKind::Empty, message)
}
