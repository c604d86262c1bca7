//! Whole architectures.
//!
//! Each is a description with fields for its sizes, and functions for the sizes that were published. A test trains a
//! small version of each beside the same network in PyTorch.
//!
//! | for | networks |
//! |---|---|
//! | classes of images | [`ResNet`] (ResNeXt), [`Vgg`], [`DenseNet`], [`Inception`], [`MobileNet`] (EfficientNet), [`ConvNext`], [`VisionTransformer`], [`MlpMixer`] |
//! | images from images | [`UNet`], [`DeepLab`], [`Autoencoder`]; volumes from volumes, [`UNet3d`] |
//! | images from noise | [`DcganGenerator`] |
//! | noise in images | [`DiffusionUNet`] |
//! | text | [`Gpt`], [`Llama`], [`Bert`], [`RecurrentLm`]; from text, [`T5`], [`Seq2Seq`] |
//! | sound | [`WaveNet`] |
//! | what people may like | [`Recommender`] |
//! | equations | [`Pinn`] |
//! | a part of others | [`MixtureOfExperts`], [`InvertedResidual`] |

mod autoencoder;
mod bert;
mod blocks;
mod convnext;
mod dcgan;
mod deeplab;
mod densenet;
mod diffusion;
mod gpt;
mod inception;
mod llama;
mod mobilenet;
mod moe;
mod pinn;
mod recommender;
mod recurrent;
mod resnet;
mod t5;
mod unet;
mod unet3d;
mod vgg;
mod vit;
mod wavenet;

pub use autoencoder::Autoencoder;
pub use bert::Bert;
pub use convnext::ConvNext;
pub use dcgan::{DcganDiscriminator, DcganGenerator};
pub use deeplab::DeepLab;
pub use densenet::DenseNet;
pub use diffusion::DiffusionUNet;
pub use gpt::Gpt;
pub use inception::{Inception, InceptionModule};
pub use llama::Llama;
pub use mobilenet::{InvertedResidual, MobileNet};
pub use moe::MixtureOfExperts;
pub use pinn::Pinn;
pub use recommender::Recommender;
pub use recurrent::{Cell, RecurrentLm, Seq2Seq};
pub use resnet::{ResNet, ResNet50};
pub use t5::T5;
pub use unet::{UNet, Upsampling};
pub use unet3d::UNet3d;
pub use vgg::Vgg;
pub use vit::{MlpMixer, VisionTransformer};
pub use wavenet::WaveNet;
