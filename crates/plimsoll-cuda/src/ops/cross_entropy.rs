//! Cross-entropy of logits against class indices, and its gradient.
//!
//! The probabilities are never written: the forward kernel reads each row once, keeping its largest logit and the sum of
//! exponentials relative to it (online softmax), and the gradient recomputes the probabilities from the log-sum, in place
//! of the logits if it may.

use super::stages::{Stages, Traits, blocks, count, read, write};
use super::{accumulator, name, reduce, team};
use crate::codegen::engine::{Engine, Properties};
use crate::codegen::launches::LaunchArgument;
use crate::error::Result;
use crate::routine::Routine;
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

const TEXT: &str = include_str!("cross_entropy.cu");

/// Prepares [`Op::CrossEntropy`](plimsoll_graph::Op::CrossEntropy).
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    stages(reads)?.prepare(engine)
}

/// Prepares [`Op::CrossEntropyGrad`](plimsoll_graph::Op::CrossEntropyGrad), which may overwrite the logits.
pub(crate) fn prepare_grad(
    engine: &Arc<Engine>,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    grad_stages(reads)?.prepare(engine)
}

/// Rows of logits, and the types that go with them.
#[derive(Clone, Copy)]
pub(super) struct LossRows {
    pub(super) rows: usize,
    pub(super) classes: usize,
    /// The elements from one row to the next.
    pub(super) pitch: usize,
    pub(super) logits: DType,
    pub(super) labels: DType,
}

impl LossRows {
    fn new(reads: &[Operand]) -> Self {
        let shape = reads[0].view.shape;
        let (rows, classes) = (shape[0], shape[1]);
        Self { rows, classes, pitch: classes, logits: reads[0].dtype, labels: reads[1].dtype }
    }

    fn launch<const N: usize>(
        &self,
        stages: &mut Stages,
        template: &str,
        held: bool,
        arguments: [(&str, LaunchArgument); N],
    ) -> Result<()> {
        let (team, block) = team(self.classes);
        let traits = Traits::new().ty("E", name(self.logits)).ty("Label", name(self.labels)).numbers([
            ("CLASSES", self.classes),
            ("PITCH", self.pitch),
            ("TEAM", team as usize),
        ]);
        let traits = traits.flag("HELD", held);
        stages.launch(template, traits, [blocks(self.rows, block / team), 1], block, arguments)
    }

    /// The bytes of shared memory that hold a row between two passes over it: where a whole block reads a row and two blocks
    /// fit on a multiprocessor, so that one reads while the other computes.
    fn held(&self, device: &Properties) -> Option<u32> {
        /// What a block has shared memory for besides.
        const BESIDES: u32 = 2 << 10;
        let ((team, block), bytes) = (team(self.classes), self.classes * self.logits.size());
        let room = (device.shared_per_processor / 2).min(device.shared_per_block).saturating_sub(BESIDES);
        let bytes = u32::try_from(bytes).ok()?;
        (team == block && bytes <= room && (self.pitch * self.logits.size()).is_multiple_of(16))
            .then_some(bytes)
    }

    /// Losses and predictions; the logits become their gradients. Reads: logits, labels, slopes. Writes: loss,
    /// prediction.
    pub(super) fn losses(&self, device: &Properties) -> Result<Stages> {
        let mut stages = Stages::new(self.rows * self.pitch, &[reduce::TEXT, TEXT]);
        let (logits, label, number) = (name(self.logits), name(self.labels), accumulator(self.logits).0);
        let arguments = [
            (logits, read(0)),
            (&*format!("const {label}"), read(1)),
            (&*format!("const {number}"), read(2)),
            (number, write(0)),
            ("i32", write(1)),
            count(self.rows),
        ];
        let held = self.held(device);
        self.launch(&mut stages, "losses", held.is_some(), arguments)?;
        stages.share(held.unwrap_or(0));
        Ok(stages)
    }
}

pub(super) fn stages(reads: &[Operand]) -> Result<Stages> {
    let rows = LossRows::new(reads);
    let mut stages = Stages::new(rows.rows * rows.classes, &[reduce::TEXT, TEXT]);
    let (logits, label, number) = (name(rows.logits), name(rows.labels), accumulator(rows.logits).0);
    let arguments = [
        (&*format!("const {logits}"), read(0)),
        (&*format!("const {label}"), read(1)),
        (number, write(0)),
        (number, write(1)),
        count(rows.rows),
    ];
    rows.launch(&mut stages, "cross_entropy", false, arguments)?;
    Ok(stages)
}

pub(super) fn grad_stages(reads: &[Operand]) -> Result<Stages> {
    let rows = LossRows::new(reads);
    let mut stages = Stages::new(rows.rows * rows.classes, &[reduce::TEXT, TEXT]);
    let (logits, label, number) = (name(rows.logits), name(rows.labels), accumulator(rows.logits).0);
    let arguments = [
        (&*format!("const {logits}"), read(0)),
        (&*format!("const {label}"), read(1)),
        (&*format!("const {number}"), read(2)),
        (&*format!("const {number}"), read(3)),
        (logits, write(0)),
        count(rows.rows),
    ];
    rows.launch(&mut stages, "cross_entropy_grad", false, arguments)?;
    Ok(stages)
}
