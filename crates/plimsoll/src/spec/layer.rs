//! The layers of a sequential `[model]`: a word, such as `"flatten"`, or a table in which one key names the layer
//! and holds its most important number, as in `{ dense = 100, activation = "relu" }`.

use super::read::{COUNT, FLAG, FRACTION, Kind, NUMBER, PAIR, POSITIVE, SHAPE, TEXT, Table, Value};
use crate::Result;
use crate::layers::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose2d, Dense, Dropout, Embedding, Flatten,
    GlobalMeanPool, GroupNorm, Gru, InstanceNorm, Layer, LayerNorm, Lstm, MaxPool, MeanPool,
    MultiHeadAttention, Padding, Rescale, Reshape, Residual, RmsNorm, Sequential, SqueezeExcite, SwiGlu,
    TransformerBlock, Upsample,
};

type Boxed = Box<dyn Layer>;

/// Reads a list of layers into one. `vocabulary` is how many tokens the data has, if it has tokens.
pub(super) fn read_layers(value: &Value<'_>, vocabulary: Option<usize>) -> Result<Sequential> {
    let list = value.list()?;
    if list.is_empty() {
        return Err(value.error("there are no layers here; expected at least one"));
    }
    list.iter().try_fold(Sequential::new(), |layers, value| {
        if value.is_text() {
            return Ok(layers.then(read_word(value)?));
        }
        let table =
            value.table("this layer", "a layer: a word in quotes, or a table, such as { dense = 10 }")?;
        let layer = Described { table: &table, vocabulary }.read()?;
        Ok(match table.find("name", TEXT)? {
            Some(name) => layers.named(&name, layer),
            None => layers.then(layer),
        })
    })
}

/// A layer that needs no numbers.
fn read_word(value: &Value<'_>) -> Result<Boxed> {
    let word = value.get(TEXT)?;
    Ok(match word.as_str() {
        "flatten" => Box::new(Flatten),
        "batch_norm" => Box::new(BatchNorm::new()),
        "layer_norm" => Box::new(LayerNorm::new()),
        "rms_norm" => Box::new(RmsNorm::new()),
        "instance_norm" => Box::new(InstanceNorm::new()),
        "global_mean_pool" => Box::new(GlobalMeanPool),
        _ => match word.parse::<Activation>() {
            Ok(activation) => Box::new(activation),
            Err(_) => {
                let message = format!(
                    "there is no layer \"{word}\"; those that are a word are flatten, batch_norm, layer_norm, \
                     rms_norm, instance_norm, global_mean_pool and the activations, such as relu; others are tables, such as {{ dense = 10 }}"
                );
                return Err(value.error(message));
            }
        },
    })
}

/// A layer with numbers.
struct Described<'a> {
    table: &'a Table<'a>,
    vocabulary: Option<usize>,
}

const PADDING: Kind<Padding> = Kind {
    expected: "\"same\", \"valid\", a whole number, or four: [top, bottom, left, right]",
    read: |v| {
        let extent = |v| (super::read::WHOLE.read)(v).and_then(|n| usize::try_from(n).ok());
        match (v.as_str(), v.as_array()) {
            (Some("same"), _) => Some(Padding::Same),
            (Some("valid"), _) => Some(Padding::Valid),
            (_, Some(list)) => {
                let border: Option<Vec<usize>> = list.iter().map(|v| extent(v.get_ref())).collect();
                border?.try_into().ok().map(Padding::Explicit)
            }
            _ => extent(v).map(|n| Padding::Explicit([n; 4])),
        }
    },
};

/// A layer with the keys that those with weights have in common: `activation`, `init` and `bias`.
macro_rules! finished {
    ($described:ident, $layer:ident) => {{
        let mut layer = $layer;
        if let Some(activation) = $described.table.find_named("activation")? {
            layer = layer.activation(activation);
        }
        if let Some(init) = $described.table.find_named("init")? {
            layer = layer.init(init);
        }
        if !$described.flag("bias", true)? {
            layer = layer.no_bias();
        }
        Ok(Box::new(layer))
    }};
}

impl Described<'_> {
    fn read(&self) -> Result<Boxed> {
        let (_, read) = self.table.kind(
            "layer",
            &[
                ("dense", Self::dense as fn(&Self) -> Result<Boxed>),
                ("conv", Self::conv),
                ("conv1d", Self::conv1d),
                ("conv_transpose", Self::conv_transpose),
                ("max_pool", Self::max_pool),
                ("mean_pool", Self::mean_pool),
                ("dropout", Self::dropout),
                ("embedding", Self::embedding),
                ("lstm", Self::lstm),
                ("gru", Self::gru),
                ("attention", Self::attention),
                ("block", Self::block),
                ("group_norm", Self::group_norm),
                ("swiglu", Self::swiglu),
                ("squeeze_excite", Self::squeeze_excite),
                ("rescale", Self::rescale),
                ("reshape", Self::reshape),
                ("upsample", Self::upsample),
                ("residual", Self::residual),
            ],
        )?;
        read(self)
    }

    fn only(&self, keys: &[&str]) -> Result<()> {
        self.table.only(&[keys, &["name"]].concat())
    }

    fn flag(&self, key: &str, usual: bool) -> Result<bool> {
        self.table.find_or(key, FLAG, usual)
    }

    fn dense(&self) -> Result<Boxed> {
        self.only(&["dense", "activation", "init", "bias"])?;
        let layer = Dense::new(self.table.need("dense", COUNT)?);
        finished!(self, layer)
    }

    fn conv(&self) -> Result<Boxed> {
        self.only(&[
            "conv",
            "window",
            "stride",
            "padding",
            "dilation",
            "groups",
            "activation",
            "init",
            "bias",
        ])?;
        let mut layer = Conv2d::new(self.table.need("conv", COUNT)?, self.table.need("window", PAIR)?);
        if let Some(stride) = self.table.find("stride", PAIR)? {
            layer = layer.stride(stride);
        }
        if let Some(padding) = self.table.find("padding", PADDING)? {
            layer = layer.padding(padding);
        }
        if let Some(dilation) = self.table.find("dilation", PAIR)? {
            layer = layer.dilation(dilation);
        }
        if let Some(groups) = self.table.find("groups", COUNT)? {
            layer = layer.groups(groups);
        }
        finished!(self, layer)
    }

    fn conv1d(&self) -> Result<Boxed> {
        self.only(&[
            "conv1d",
            "window",
            "stride",
            "padding",
            "causal",
            "dilation",
            "groups",
            "activation",
            "init",
            "bias",
        ])?;
        let mut layer = Conv1d::new(self.table.need("conv1d", COUNT)?, self.table.need("window", COUNT)?)
            .stride(self.table.find_or("stride", COUNT, 1)?)
            .padding(self.table.find_or("padding", PADDING, Padding::Valid)?)
            .dilation(self.table.find_or("dilation", COUNT, 1)?)
            .groups(self.table.find_or("groups", COUNT, 1)?);
        if self.flag("causal", false)? {
            layer = layer.causal();
        }
        finished!(self, layer)
    }

    fn conv_transpose(&self) -> Result<Boxed> {
        self.only(&[
            "conv_transpose",
            "window",
            "stride",
            "padding",
            "dilation",
            "groups",
            "activation",
            "init",
            "bias",
        ])?;
        let filters = self.table.need("conv_transpose", COUNT)?;
        let layer = ConvTranspose2d::new(filters, self.table.need("window", PAIR)?)
            .stride(self.table.find_or("stride", PAIR, [1, 1])?)
            .padding(self.table.find_or("padding", PADDING, Padding::Valid)?)
            .dilation(self.table.find_or("dilation", PAIR, [1, 1])?)
            .groups(self.table.find_or("groups", COUNT, 1)?);
        finished!(self, layer)
    }

    fn group_norm(&self) -> Result<Boxed> {
        self.only(&["group_norm"])?;
        Ok(Box::new(GroupNorm::new(self.table.need("group_norm", COUNT)?)))
    }

    fn swiglu(&self) -> Result<Boxed> {
        self.only(&["swiglu"])?;
        Ok(Box::new(SwiGlu::new(self.table.need("swiglu", COUNT)?)))
    }

    fn squeeze_excite(&self) -> Result<Boxed> {
        self.only(&["squeeze_excite"])?;
        Ok(Box::new(SqueezeExcite::new(self.table.need("squeeze_excite", COUNT)?)))
    }

    fn max_pool(&self) -> Result<Boxed> {
        let (window, stride, padding) = self.pool("max_pool")?;
        Ok(Box::new(MaxPool::new(window).stride(stride).padding(padding)))
    }

    fn mean_pool(&self) -> Result<Boxed> {
        let (window, stride, padding) = self.pool("mean_pool")?;
        Ok(Box::new(MeanPool::new(window).stride(stride).padding(padding)))
    }

    fn pool(&self, key: &str) -> Result<([usize; 2], [usize; 2], Padding)> {
        self.only(&[key, "stride", "padding"])?;
        let window = self.table.need(key, PAIR)?;
        let stride = self.table.find_or("stride", PAIR, window)?;
        Ok((window, stride, self.table.find_or("padding", PADDING, Padding::Valid)?))
    }

    fn dropout(&self) -> Result<Boxed> {
        self.only(&["dropout"])?;
        Ok(Box::new(Dropout(self.table.need("dropout", FRACTION)?)))
    }

    fn embedding(&self) -> Result<Boxed> {
        self.only(&["embedding", "width", "init"])?;
        let vocabulary = super::model::read_vocabulary(self.table, "embedding", self.vocabulary)?;
        let mut layer = Embedding::new(vocabulary, self.table.need("width", COUNT)?);
        if let Some(init) = self.table.find_named("init")? {
            layer = layer.init(init);
        }
        Ok(Box::new(layer))
    }

    fn lstm(&self) -> Result<Boxed> {
        self.only(&["lstm", "sequences"])?;
        let layer = Lstm::new(self.table.need("lstm", COUNT)?);
        Ok(Box::new(if self.flag("sequences", false)? { layer.sequences() } else { layer }))
    }

    fn gru(&self) -> Result<Boxed> {
        self.only(&["gru", "sequences"])?;
        let layer = Gru::new(self.table.need("gru", COUNT)?);
        Ok(Box::new(if self.flag("sequences", false)? { layer.sequences() } else { layer }))
    }

    fn attention(&self) -> Result<Boxed> {
        self.only(&["attention", "causal", "key_value_heads", "rotary", "bias"])?;
        let mut layer = MultiHeadAttention::new(self.table.need("attention", COUNT)?);
        if let Some(heads) = self.table.find("key_value_heads", COUNT)? {
            layer = layer.key_value_heads(heads);
        }
        if let Some(base) = self.table.find("rotary", POSITIVE)? {
            layer = layer.rotary(base);
        }
        if !self.flag("bias", true)? {
            layer = layer.no_bias();
        }
        Ok(Box::new(if self.flag("causal", false)? { layer.causal() } else { layer }))
    }

    fn block(&self) -> Result<Boxed> {
        self.only(&["block", "causal", "dropout"])?;
        let layer = TransformerBlock::new(self.table.need("block", COUNT)?)
            .dropout(self.table.find_or("dropout", FRACTION, 0.0)?);
        Ok(Box::new(if self.flag("causal", false)? { layer.causal() } else { layer }))
    }

    fn reshape(&self) -> Result<Boxed> {
        self.only(&["reshape"])?;
        Ok(Box::new(Reshape(self.table.need("reshape", SHAPE)?)))
    }

    fn rescale(&self) -> Result<Boxed> {
        self.only(&["rescale", "offset"])?;
        let factor = self.table.need("rescale", POSITIVE)?;
        Ok(Box::new(Rescale { factor, offset: self.table.find_or("offset", NUMBER, 0.0)? }))
    }

    fn upsample(&self) -> Result<Boxed> {
        self.only(&["upsample"])?;
        Ok(Box::new(Upsample(self.table.need("upsample", COUNT)?)))
    }

    fn residual(&self) -> Result<Boxed> {
        self.only(&["residual", "projection"])?;
        let layers =
            |key: &str| self.table.value(key).map(|value| read_layers(&value, self.vocabulary)).transpose();
        let mut layer = Residual::new(layers("residual")?.unwrap_or_default());
        if let Some(projection) = layers("projection")? {
            layer = layer.projection(projection);
        }
        Ok(Box::new(layer))
    }
}
