//! The `[model]` of a workload: layers one after another, or a whole architecture.

use super::data::Data;
use super::layer::read_layers;
use super::read::{COUNT, FLAG, FRACTION, Kind, POSITIVE, SHAPE, Table};
use crate::Result;
use crate::layers::Layer;
use crate::models::{
    ConvNext, DeepLab, DenseNet, Gpt, Inception, Llama, MlpMixer, MobileNet, ResNet, ResNet50, UNet,
    Upsampling, Vgg, VisionTransformer,
};
use std::rc::Rc;

/// A stack so deep that nobody meant it would take hours to trace.
const DEPTH: Kind<usize> = Kind {
    expected: "a whole number from 1 to 10000",
    read: |v| (COUNT.read)(v).filter(|&layers| layers <= 10_000),
};

type Read = fn(&Table<'_>, &Data) -> Result<Rc<dyn Layer>>;

/// Reads the section of a workload with this data.
pub(super) fn read(table: &Table<'_>, data: &Data) -> Result<Rc<dyn Layer>> {
    let read = table.need_choice(
        "kind",
        &[
            ("sequential", read_sequential as Read),
            ("gpt", read_gpt),
            ("llama", read_llama),
            ("unet", read_unet),
            ("deeplab", |table, _| of_classes(table, DeepLab::new)),
            ("resnet18", |table, _| of_classes(table, ResNet::resnet18)),
            ("resnet34", |table, _| of_classes(table, ResNet::resnet34)),
            ("resnet50", |table, _| of_classes(table, ResNet50::new)),
            ("resnet101", |table, _| of_classes(table, ResNet::resnet101)),
            ("resnext50", |table, _| of_classes(table, ResNet::resnext50)),
            ("vgg11", |table, _| of_classes(table, Vgg::vgg11)),
            ("vgg16", |table, _| of_classes(table, Vgg::vgg16)),
            ("densenet121", |table, _| of_classes(table, DenseNet::densenet121)),
            ("googlenet", |table, _| of_classes(table, Inception::googlenet)),
            ("mobilenet_v2", |table, _| of_classes(table, MobileNet::v2)),
            ("mobilenet_v3", |table, _| of_classes(table, MobileNet::v3_large)),
            ("efficientnet_b0", |table, _| of_classes(table, MobileNet::efficientnet_b0)),
            ("convnext_t", |table, _| of_classes(table, ConvNext::tiny)),
            ("vit_b16", |table, _| of_classes(table, VisionTransformer::base16)),
            ("vit_s16", |table, _| of_classes(table, VisionTransformer::small16)),
            ("mixer_b16", |table, _| of_classes(table, MlpMixer::base16)),
        ],
    )?;
    read(table, data)
}

/// A network of a published size, of which the number of classes is all there is to say.
fn of_classes<M: Layer + 'static>(table: &Table<'_>, model: fn(usize) -> M) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "classes"])?;
    Ok(Rc::new(model(table.need("classes", COUNT)?)))
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

fn read_llama(table: &Table<'_>, data: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "layers", "width", "heads", "key_value_heads", "hidden", "vocabulary", "base"])?;
    let heads = table.need("heads", COUNT)?;
    Ok(Rc::new(Llama {
        layers: table.need("layers", DEPTH)?,
        width: table.need("width", COUNT)?,
        heads,
        key_value_heads: table.find_or("key_value_heads", COUNT, heads)?,
        hidden: table.need("hidden", COUNT)?,
        vocab: read_vocabulary(table, "vocabulary", data.tokens().map(|tokens| tokens.vocabulary))?,
        base: table.find_or("base", POSITIVE, 10000.0)?,
    }))
}

const UPSAMPLING: Kind<Upsampling> = Kind {
    expected: "\"nearest\", \"bilinear\" or \"transposed\"",
    read: |v| match v.as_str() {
        Some("nearest") => Some(Upsampling::Nearest),
        Some("bilinear") => Some(Upsampling::Bilinear),
        Some("transposed") => Some(Upsampling::Transposed),
        _ => None,
    },
};

fn read_unet(table: &Table<'_>, _: &Data) -> Result<Rc<dyn Layer>> {
    table.only(&["kind", "channels", "widths", "upsampling"])?;
    let mut unet = UNet::new(table.need("channels", COUNT)?);
    if let Some(widths) = table.find("widths", SHAPE)? {
        unet = unet.widths(&widths);
    }
    Ok(Rc::new(unet.upsampling(table.find_or("upsampling", UPSAMPLING, Upsampling::Nearest)?)))
}
