//! A trained model at work: measured on data, or asked for its predictions, with nothing of training in memory.

use super::Trainer;
use super::batch_reader::BatchReader;
use super::measures::Measures;
use super::steps::{EVALUATE, batch_shape, dtype};
use crate::exchange::{LoadReport, Names, Partial, load_weights};
use crate::forecast::Forecast;
use crate::run::{Input, InputShapes};
use crate::{Array, DType, Error, ErrorKind, Result, Run, Shape};
use plimsoll_data::{Batch, Dataset, Field};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the step that predicts.
const PREDICT: &str = "predict";

/// The positions of the steps in their run.
const PREDICTION: usize = 0;
const MEASUREMENT: usize = 1;

/// A model that is not trained any more: its weights, and the steps that use them.
///
/// ```
/// use plimsoll::{RunFolder, Spec, Start};
///
/// let spec = Spec::find("digits")?.epochs(2);
/// let (data, held_out) = spec.datasets()?;
/// # let folder = std::env::temp_dir().join(format!("plimsoll-doc-inference-{}", std::process::id()));
/// let mut training = spec.trainer().compile(&data, held_out.as_ref())?;
/// let report = training.fit_into(&mut RunFolder::open(&folder)?, Start::Over, &mut ())?;
///
/// let mut model = spec.trainer().inference(&data)?;
/// model.load(folder.join("weights.safetensors"))?;
/// assert!(model.evaluate()?["accuracy"] > 0.8);
/// let mut samples = 0;
/// model.predict(&mut |logits| {
///     samples += logits.shape()[0];
///     Ok(())
/// })?;
/// assert_eq!(samples, data.samples());
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Inference<'a> {
    trainer: Trainer,
    data: &'a Dataset,
    run: Run,
    reader: Option<BatchReader>,
}

impl Trainer {
    /// Compiles what the model does with data when it is not trained: predictions, and metrics where the data has targets.
    /// The weights are first ones until they are loaded.
    ///
    /// # Errors
    /// As [`Trainer::compile`].
    pub fn inference<'a>(&self, data: &'a Dataset) -> Result<Inference<'a>> {
        Inference::new(self, data)
    }
}

impl<'a> Inference<'a> {
    fn new(trainer: &Trainer, data: &'a Dataset) -> Result<Inference<'a>> {
        let trainer = trainer.cut_to(data);
        let fields = data.fields();
        let Some(first) = fields.first() else {
            return Err(Error::new(ErrorKind::Data, "the data has no field that a model could be given"));
        };
        if data.samples() == 0 {
            return Err(Error::new(ErrorKind::Data, "the data has no samples"));
        }
        let (samples, rest) = (trainer.batch, data.samples() % trainer.batch);
        let input = |field: &Field| {
            Input::new(field.name(), &batch_shape(field, samples, trainer.longest()), dtype(field))
        };
        let predicting = trainer.clone();
        let mut run = trainer.new_run(data, None).inference(PREDICT, [input(first)], move |cx, inputs| {
            let [x] = inputs.all()?;
            let prediction = predicting.model.forward(cx, x)?.cast(DType::F32)?;
            Ok([("prediction", prediction)])
        });
        if let [_, target] = fields {
            let measuring = trainer.clone();
            let inputs = [input(first), input(target).exact()];
            run = run.inference(EVALUATE, inputs, move |cx, inputs| measuring.measured(cx, inputs));
        }
        if rest > 0 {
            let shapes: Vec<Vec<usize>> =
                fields.iter().map(|field| batch_shape(field, rest, trainer.longest())).collect();
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            run = run.shapes(PREDICT, &shapes[..1]);
            run = if fields.len() == 2 { run.shapes(EVALUATE, &shapes) } else { run };
        }
        run = run.may_split(PREDICT);
        run = if fields.len() == 2 { run.may_split(EVALUATE) } else { run };
        Ok(Inference { run: run.compile()?, trainer, data, reader: None })
    }

    /// What it takes: exactly what it reserves.
    pub fn forecast(&self) -> Forecast {
        self.run.forecast()
    }

    /// The run behind it.
    pub fn run(&mut self) -> &mut Run {
        &mut self.run
    }

    /// Takes the weights of a file that training has written.
    ///
    /// # Errors
    /// If it cannot be read, or has not all of them.
    pub fn load(&mut self, weights: impl AsRef<Path>) -> Result<LoadReport> {
        load_weights(&mut self.run, weights, &Names::plimsoll(), Partial::Refused)
    }

    /// Loss and metrics of all the data.
    ///
    /// # Errors
    /// If the data has no targets, or cannot be read.
    pub fn evaluate(&mut self) -> Result<BTreeMap<String, f64>> {
        if self.data.fields().len() != 2 {
            let message = "data without targets cannot be measured; it can be predicted";
            return Err(Error::new(ErrorKind::Data, message));
        }
        let mut measures = Measures::new(self.trainer.held_out_metrics());
        for batch in self.data.batches(self.trainer.batch)?.epoch(0) {
            self.run_on(MEASUREMENT, &batch)?;
            if let Some(ended) = self.run.ended() {
                measures.add(&ended);
                self.run.reuse(ended);
            }
        }
        Ok(measures.take().iter().cloned().collect())
    }

    /// Shows what the model makes of the data, batch after batch in the order of its samples.
    ///
    /// # Errors
    /// If the data cannot be read, or what `see` returns.
    pub fn predict(&mut self, see: &mut dyn FnMut(&Array) -> Result<()>) -> Result<()> {
        for batch in self.data.batches(self.trainer.batch)?.epoch(0) {
            self.run_on(PREDICTION, &batch)?;
            if let Some(ended) = self.run.ended() {
                self.run.reuse(ended);
            }
            see(self.run.last_output(PREDICTION)?)?;
        }
        Ok(())
    }

    fn run_on(&mut self, step: usize, batch: &Batch<'_>) -> Result<()> {
        let length = self.trainer.longest();
        if self.reader.is_none() {
            let leaves = self.run.ahead()? > 0;
            let (host, fields) = (self.run.host().clone(), self.data.fields());
            self.reader = Some(BatchReader::new(fields, self.trainer.batch, host, leaves, length.is_some()));
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let inputs = if step == PREDICTION { 1 } else { 2 };
        let shape = |field: &Field| Ok(Shape::new(&batch_shape(field, batch.samples(), length))?);
        let shapes: InputShapes =
            self.data.fields()[..inputs].iter().map(shape).collect::<Result<Vec<Shape>>>()?.into();
        self.run.begin(step, &shapes, &mut |part, input, out| {
            reader.fill(&batch.part(part.first, part.samples), input, length, out)
        })?;
        self.run.finish()
    }
}
