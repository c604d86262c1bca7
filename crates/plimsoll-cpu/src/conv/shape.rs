//! The sizes of a convolution, checked once.

use std::fmt;

/// The sizes of a two-dimensional convolution.
///
/// Images are `[batch, height, width, channels]`, filters `[height, width, channels / groups, out_channels]`.
/// Pairs are vertical, then horizontal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// The number of images.
    pub batch: usize,
    /// The height and width of an input image.
    pub input: [usize; 2],
    /// The channels of an input image.
    pub channels: usize,
    /// The height and width of a filter.
    pub filter: [usize; 2],
    /// The channels of an output image.
    pub out_channels: usize,
    /// The distance between neighbouring windows.
    pub stride: [usize; 2],
    /// The zeros before and after the image: top and bottom, left and right.
    pub padding: [[usize; 2]; 2],
    /// The distance between neighbouring taps of a filter.
    pub dilation: [usize; 2],
    /// The groups of channels that are convolved apart.
    pub groups: usize,
    /// The height and width of an output image.
    pub output: [usize; 2],
    /// Whether Winograd's algorithm may compute it.
    pub(crate) may_use_winograd: bool,
}

impl ConvShape {
    /// The convolution of an input `[batch, height, width, channels]` with a filter
    /// `[height, width, channels / groups, out_channels]`.
    ///
    /// # Errors
    ///
    /// When the sizes do not fit each other; the message says which and how.
    pub fn new(
        input: [usize; 4],
        filter: [usize; 4],
        stride: [usize; 2],
        padding: [[usize; 2]; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<Self, ConvError> {
        let [batch, height, width, channels] = input;
        let [filter_height, filter_width, group_channels, out_channels] = filter;
        let fail = |why: String| Err(ConvError(format!("convolution of {input:?} with {filter:?}: {why}")));
        if filter_height == 0 || filter_width == 0 {
            return fail("the filter has no taps".into());
        }
        if stride.contains(&0) || dilation.contains(&0) || groups == 0 {
            return fail(format!(
                "stride {stride:?}, dilation {dilation:?} and groups {groups} must be at least 1"
            ));
        }
        if channels % groups != 0 || out_channels % groups != 0 {
            return fail(format!(
                "{groups} groups must divide {channels} input and {out_channels} output channels"
            ));
        }
        if channels / groups != group_channels {
            return fail(format!(
                "the filter must have {channels} / {groups} = {} input channels, not {group_channels}",
                channels / groups
            ));
        }
        let mut output = [0; 2];
        for axis in 0..2 {
            let (size, taps) = ([height, width][axis], [filter_height, filter_width][axis]);
            let [before, after] = padding[axis];
            let padded = size.checked_add(before).and_then(|size| size.checked_add(after));
            let reach = (taps - 1).checked_mul(dilation[axis]).and_then(|reach| reach.checked_add(1));
            let (Some(padded), Some(reach)) = (padded, reach) else {
                return fail("the sizes are too large".into());
            };
            if padded < reach {
                return fail(format!(
                    "{taps} taps at a distance of {} reach over {reach}, more than {size} padded by {before} \
                     and {after}",
                    dilation[axis]
                ));
            }
            output[axis] = (padded - reach) / stride[axis] + 1;
        }
        let elements = [
            vec![batch, height, width, channels],
            vec![filter_height, filter_width, group_channels, out_channels],
            vec![batch, output[0], output[1], out_channels],
            vec![batch, output[0], output[1], filter_height, filter_width, group_channels],
        ];
        let too_many = |sizes: &Vec<usize>| {
            let product = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
            product.is_none_or(|product| product > isize::MAX as usize / 64)
        };
        if elements.iter().any(too_many) {
            return fail("the sizes are too large".into());
        }
        Ok(Self {
            batch,
            input: [height, width],
            channels,
            filter: [filter_height, filter_width],
            out_channels,
            stride,
            padding,
            dilation,
            groups,
            output,
            may_use_winograd: true,
        })
    }

    /// The same convolution, by Winograd's algorithm where that is faster, or always by sums of products.
    pub fn with_winograd(self, may_use_winograd: bool) -> Self {
        Self { may_use_winograd, ..self }
    }

    /// The input channels of a group.
    pub fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    /// The output channels of a group.
    pub fn group_out_channels(&self) -> usize {
        self.out_channels / self.groups
    }

    /// The elements of the input.
    pub fn input_len(&self) -> usize {
        self.batch * self.input[0] * self.input[1] * self.channels
    }

    /// The elements of the filter.
    pub fn filter_len(&self) -> usize {
        self.filter[0] * self.filter[1] * self.group_channels() * self.out_channels
    }

    /// The elements of the output.
    pub fn output_len(&self) -> usize {
        self.batch * self.output[0] * self.output[1] * self.out_channels
    }
}

/// Sizes that make no convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvError(String);

impl fmt::Display for ConvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConvError {}
