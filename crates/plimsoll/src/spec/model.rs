//! The `[model]` of a workload: layers one after another, or a whole architecture.

use super::data::Data;
use super::layer::read_layers;
use super::read::{COUNT, FLAG, FRACTION, Kind, Table};
use crate::Result;
use crate::layers::Layer;
use crate::models::{Gpt, ResNet50, UNet};
use std::rc::Rc;

/// A stack so deep that nobody meant it would take hours to trace.
const DEPTH: Kind<usize> = Kind {
    expected: "a whole number from 1 to 10000",
    read: |v| (COUNT.read)(v).filter(|&layers| layers <= 10_000),
};

/// Reads the section of a workload with this data.
pub(super) fn read(table: &Table<'_>, data: &Data) -> Result<Rc<dyn Layer>> {
    let read = table.need_choice(
        "kind",
        &[
            ("sequential", read_sequential as fn(&Table<'_>, &Data) -> Result<Rc<dyn Layer>>),
            ("gpt", read_gpt),
            ("resnet50", read_resnet50),
            ("unet", read_unet),
        ],
    )?;
    read(table, data)
}

/// How many tokens a model knows, which must not be fewer than the data has.
pub(super) fn read_vocabulary(table: &Table<'_>, key: &str, in_data: Option<usize>) -> Result<usize> {
    let vocabulary = table.need(key, COUNT)?;
    match (in_data, table.value(key)) {
        (Some(tokens), Some(value)) if tokens > vocabulary => {
            Err(value.error(format!("`{key}` is {vocabulary}, but the data has {tokens} different tokens")))
        }
        _ => Ok(vocabulary),
    }
}

fn read_sequential(table: &Table<'_>, data: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "layers"])?;
    let layers = table.needed("layers", "a list of layers, such as [{ dense = 10 }]")?;
    Ok(Rc::new(read_layers(&layers, data.tokens().map(|tokens| tokens.vocabulary))?))
}

fn read_gpt(table: &Table<'_>, data: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "layers", "width", "heads", "context", "vocabulary", "dropout", "tied_head"])?;
    Ok(Rc::new(Gpt {
        layers: table.need("layers", DEPTH)?,
        width: table.need("width", COUNT)?,
        heads: table.need("heads", COUNT)?,
        context: table.need("context", COUNT)?,
        vocab: read_vocabulary(table, "vocabulary", data.tokens().map(|tokens| tokens.vocabulary))?,
        dropout: table.find_or("dropout", FRACTION, 0.0)?,
        tied_head: table.find_or("tied_head", FLAG, false)?,
    }))
}

fn read_resnet50(table: &Table<'_>, _: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "classes"])?;
    Ok(Rc::new(ResNet50::new(table.need("classes", COUNT)?)))
}

fn read_unet(table: &Table<'_>, _: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "channels"])?;
    Ok(Rc::new(UNet::new(table.need("channels", COUNT)?)))
}
