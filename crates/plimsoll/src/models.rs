//! Whole architectures.

mod gpt;
mod resnet;
mod unet;

pub use gpt::Gpt;
pub use resnet::ResNet50;
pub use unet::UNet;
