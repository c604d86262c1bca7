//! Which column of a table is to be predicted, as workload files say it.

use super::{Answer, Classes, Options};
use crate::Result;

/// The column that is to be predicted.
#[derive(Clone, Debug)]
pub(super) struct Predicted {
    pub(super) column: String,
    /// Its classes, if these are what it holds.
    pub(super) classes: Option<Classes>,
}

impl Predicted {
    /// Reads `label` and `classes`, or `target`.
    pub(super) fn read(options: &dyn Options) -> Result<Predicted> {
        match (options.find_text("label")?, options.find_text("target")?) {
            (Some(column), None) => Ok(Predicted { column, classes: Some(options.need_classes("classes")?) }),
            (None, Some(column)) => match options.find_classes("classes")? {
                None => Ok(Predicted { column, classes: None }),
                Some(_) => {
                    let message = "`classes` are those of a `label`; a `target` has none";
                    Err(options.refuse(Some("classes"), message))
                }
            },
            _ => {
                let message = "[data] needs exactly one of `label`, a column of classes to predict, and `target`, a \
                               column of any numbers";
                Err(options.refuse(None, message))
            }
        }
    }

    pub(super) fn answer(&self) -> Answer {
        if self.classes.is_some() { Answer::Classes } else { Answer::Number }
    }
}
