//! Where a step goes wrong: the first value that is not finite, with the states as they are.

use super::declared::{Key, Kind};
use super::given;
use super::{BatchPart, DeclaredStep, FillPart, InputShapes, Run};
use crate::{Array, Error, ErrorKind, Result};
use plimsoll_graph::Phase;
use plimsoll_graph::program::Role;
use std::fmt;
use std::ops::Range;

/// The first value of a step that is not finite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFinite {
    /// The scope that it is computed in, or its name if it is an input or a parameter.
    pub scope: String,
    /// The op that computes it; `input` or `parameter` if none does.
    pub op: String,
    /// The part of the step that it is computed in. A parameter that is not finite before the step became so in an update.
    pub phase: Phase,
    /// How many of its elements are not finite.
    pub count: u64,
    /// How many it has.
    pub of: u64,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotFinite { scope, op, phase, count, of } = self;
        match op.as_str() {
            "input" => write!(f, "the input `{scope}` is not finite in {count} of {of} elements"),
            "parameter" => write!(
                f,
                "the parameter `{scope}` is not finite in {count} of {of} elements since the update before"
            ),
            _ => write!(
                f,
                "the first value that is not finite is that of {op} in `{scope}` ({phase}), in {count} of {of} elements"
            ),
        }
    }
}

impl Run {
    /// The first value of a step on these inputs, given as to [`Run::step`], that is not finite with the states as they
    /// are: of the parameters, of the inputs, then in the order in which values are computed. Nothing is changed by it.
    ///
    /// A step whose loss is not finite leaves parameters and slots as they were, so this can be asked afterwards. It is
    /// answered by programs of its own, within the memory of the run: values that cannot be looked at in it are left out.
    ///
    /// # Errors
    /// As [`Run::step`], and if nothing was found and values were left out.
    pub fn first_not_finite(&mut self, name: &str, inputs: &[(&str, &Array)]) -> Result<Option<NotFinite>> {
        let step = self.find(name)?;
        let (order, shapes) = self.arrange(step, &given(inputs))?;
        self.examine(step, &shapes, 0, &mut |part, index, bytes| {
            let array = inputs[order[index]].1;
            let sample = array.bytes().len() / array.shape().first().copied().unwrap_or(1).max(1);
            let from = if array.shape().is_empty() { 0 } else { part.first * sample };
            bytes.copy_from_slice(&array.bytes()[from..][..bytes.len()]);
            Ok(())
        })
    }

    /// [`Run::first_not_finite`] with inputs of some shapes that `fill` writes, for a step that began `ago` steps ago.
    pub(crate) fn examine(
        &mut self,
        step: usize,
        shapes: &InputShapes,
        ago: u64,
        fill: FillPart<'_>,
    ) -> Result<Option<NotFinite>> {
        if let Some(parameter) = self.parameter_not_finite()? {
            return Ok(Some(parameter));
        }
        // Random numbers are drawn again as they were then.
        let random = self.states().into_iter().find(|state| state.name == "random");
        let now = random.map(|state| self.state(&state.name)).transpose()?;
        if let Some(now) = &now {
            let [seed, steps] = [0, 1].map(|at| now.to_vec::<i64>().map_or(0, |numbers| numbers[at]));
            self.set_state("random", &Array::new(&[3], &[seed, steps.saturating_sub(ago as i64), 0])?)?;
        }
        let found = self.examine_parts(step, shapes, fill);
        if let Some(now) = &now {
            self.set_state("random", now)?;
        }
        found
    }

    fn examine_parts(
        &mut self,
        step: usize,
        shapes: &InputShapes,
        fill: FillPart<'_>,
    ) -> Result<Option<NotFinite>> {
        let samples = DeclaredStep::samples(shapes);
        let counts = self.declared.steps[step].parts(shapes, self.fit.choice.parts[step]);
        let (mut first, mut left_out) = (0, None);
        for count in counts {
            let key = Key { step, kind: Kind::Whole, shapes: self.part_shapes(shapes, count)? };
            let part = BatchPart { first, samples: count, weight: count as f64 / samples.max(1) as f64 };
            let whole = self.declared.trace(&key)?;
            let examined = whole.examined();
            let all = 0..examined.len();
            if let Some((index, count)) = self.examine_values(&key, part, all, fill, &mut left_out)? {
                let (graph, value) = (&whole.graph, examined[index]);
                return Ok(Some(NotFinite {
                    scope: graph.scope(value).to_string(),
                    op: graph.op(value).name().to_string(),
                    phase: whole.phases.of(graph.producer(value).index()),
                    count,
                    of: graph.shape(value).elements() as u64,
                }));
            }
            first += count;
        }
        left_out.map_or(Ok(None), Err)
    }

    /// The first of some values that is not finite, by its position among all that are examined, and in how many elements.
    /// As many are looked at in one program as the run's memory allows; those that alone are too much for it are left out.
    fn examine_values(
        &mut self,
        whole: &Key,
        part: BatchPart,
        values: Range<usize>,
        fill: FillPart<'_>,
        left_out: &mut Option<Error>,
    ) -> Result<Option<(usize, u64)>> {
        let kind = Kind::Examine { first: values.start, last: values.end };
        let key = Key { kind, ..whole.clone() };
        let signature = match self.ensure(&key) {
            Err(error) if error.kind() == ErrorKind::Budget && values.len() > 1 => {
                let middle = values.start.midpoint(values.end);
                return match self.examine_values(whole, part, values.start..middle, fill, left_out)? {
                    None => self.examine_values(whole, part, middle..values.end, fill, left_out),
                    found => Ok(found),
                };
            }
            Err(error) if error.kind() == ErrorKind::Budget => {
                left_out.get_or_insert(error);
                return Ok(None);
            }
            signature => signature?,
        };
        let session = self.session()?;
        session.begin(&key, &mut |index, bytes| {
            fill(part, index, bytes)?;
            signature.limits[index].as_ref().map_or(Ok(()), |limit| limit.check(bytes))
        })?;
        let mut found: Option<(usize, u64)> = None;
        session.collect(&mut |index, bytes| {
            let count = bytes.try_into().map_or(0.0, f32::from_ne_bytes);
            if count > 0.0 && found.is_none_or(|(known, _)| index < known) {
                found = Some((index, count as u64));
            }
        })?;
        Ok(found.map(|(index, count)| (values.start + index, count)))
    }

    /// The last of the parameters that are not finite. Gradients flow from the last to the first, and carry on what is not
    /// finite: so it is the one where that began.
    fn parameter_not_finite(&mut self) -> Result<Option<NotFinite>> {
        let table = self.fit.choice.table.iter();
        let parameters = table.filter(|(state, ty)| state.role == Role::Parameter && ty.dtype.is_float());
        let names: Vec<(String, u64)> =
            parameters.map(|(state, ty)| (state.name.to_string(), ty.shape.elements() as u64)).collect();
        for (name, of) in names.into_iter().rev() {
            let mut count = 0;
            self.show_state(&name, &mut |piece| {
                let numbers = piece.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes));
                count += numbers.filter(|number| !number.is_finite()).count() as u64;
                Ok(())
            })?;
            if count > 0 {
                let op = "parameter".into();
                return Ok(Some(NotFinite { scope: name, op, phase: Phase::Update, count, of }));
            }
        }
        Ok(None)
    }
}
