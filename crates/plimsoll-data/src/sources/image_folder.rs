//! Images in a folder for each class, as most sets of labelled images are handed around: `folder/cat/12.jpg`.
//!
//! Only the names of the files are kept, in one string. An image is read and decoded when its sample is, in memory that the
//! next image uses again: one such set of buffers for each thread that reads at the same time.

use super::{Answer, Description, Options, SourceKind};
use crate::image::{
    Buffers, Channels, Image, ImageMut, MOST_PIXELS, Resizer, decode_into, measure, resize_with,
};
use crate::source::Promise;
use crate::{Dataset, Element, Error, ErrorKind, Field, Record, Result, Source};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(super) const KIND: SourceKind =
    SourceKind { name: "images", keys: &["path", "height", "width", "scale", "grey", "missing"], describe };

const FEATURES: usize = 0;
const LABEL: usize = 1;
/// The endings of files that are images, of which some cannot be decoded.
const ENDINGS: [&str; 12] =
    ["png", "jpg", "jpeg", "jfif", "gif", "bmp", "webp", "tif", "tiff", "avif", "heic", "heif"];
/// So many images, spread over all, are looked at to say what reading takes.
const MEASURED: usize = 64;
/// Folders within a class are followed so far down, so that a link to a folder above does not lead around forever.
const DEEPEST: usize = 16;
/// An image takes no more bytes of its file for a pixel than this.
const MOST_BYTES_OF_A_PIXEL: usize = 8;

/// Images in a folder for each class: `features`, and `label`, `i32`, the number of the class.
///
/// Classes are the folders in the order of their names, numbered from 0; an image of a class is any file in its folder, or in
/// folders within, whose name ends in `.png`, `.jpg`, `.jpeg` or `.jfif`, or as images of other kinds do, such as `.webp`: that
/// one is an error when it is read, and is not passed over silently. What begins with a dot is left out.
/// [`decode`](crate::image::decode) says what becomes of the many kinds of images.
///
/// Without a [`size`](ImageFolder::size), `features` are `u8` of an open shape `[?, ?, 3]`, to be read as records.
///
/// ```no_run
/// use plimsoll_data::{Dataset, ImageFolder};
///
/// let images = ImageFolder::new("train")?.size(224, 224)?;
/// println!("{:?}", images.classes());
/// let split = Dataset::new(images)?.split(0.9, 7)?;
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Debug)]
pub struct ImageFolder {
    folder: PathBuf,
    files: Files,
    fields: Vec<Field>,
    has_labels: bool,
    size: Option<[usize; 2]>,
    channels: Channels,
    is_scaled: bool,
    most_pixels: usize,
    idle: Mutex<Vec<Scratch>>,
    /// The most that reading an image was found to take.
    most_taken: AtomicU64,
}

/// What reading an image needs, beside where it is written to.
#[derive(Debug, Default)]
struct Scratch {
    file: Vec<u8>,
    decoded: Buffers,
    resizer: Resizer,
    resized: Vec<u8>,
}

impl Scratch {
    fn held_bytes(&self) -> usize {
        let own = self.file.capacity() + self.resized.capacity();
        own + self.decoded.held_bytes() + self.resizer.size_of_internal_buffers()
    }
}

impl ImageFolder {
    /// The images of a folder, as large as they are.
    ///
    /// A few of them are looked at to say what reading takes ([`Source::reading_bytes`]); none is decoded.
    ///
    /// # Errors
    /// If the folder cannot be read, has no folders for classes, or one of those has no image.
    pub fn new(folder: impl AsRef<Path>) -> Result<ImageFolder> {
        let folder = folder.as_ref();
        ImageFolder::of(folder, Files::list(folder)?, true)
    }

    /// The images of a folder and of those within, in the order of their paths, without classes: `features` alone.
    ///
    /// # Errors
    /// If the folder cannot be read or has no image.
    pub fn unlabelled(folder: impl AsRef<Path>) -> Result<ImageFolder> {
        let folder = folder.as_ref();
        ImageFolder::of(folder, Files::list_unlabelled(folder)?, false)
    }

    fn of(folder: &Path, files: Files, has_labels: bool) -> Result<ImageFolder> {
        let images = ImageFolder {
            folder: folder.to_path_buf(),
            files,
            fields: fields(None, Channels::Rgb, false, has_labels)?,
            has_labels,
            size: None,
            channels: Channels::Rgb,
            is_scaled: false,
            most_pixels: MOST_PIXELS,
            idle: Mutex::default(),
            most_taken: AtomicU64::new(0),
        };
        images.measure();
        Ok(images)
    }

    /// Every image resized to this height and width, whatever its own: `features` are `[height, width, 3]`.
    ///
    /// # Errors
    /// If there are no pixels, or more than can be addressed.
    pub fn size(self, height: usize, width: usize) -> Result<ImageFolder> {
        self.changed(|images| images.size = Some([height, width]))
    }

    /// One channel, of brightness, in place of three.
    ///
    /// # Errors
    /// None that were not there before.
    pub fn grey(self) -> Result<ImageFolder> {
        self.changed(|images| images.channels = Channels::Grey)
    }

    /// `features` as `f32` from 0 to 1 in place of `u8`.
    ///
    /// # Errors
    /// If there are then more bytes than can be addressed.
    pub fn scaled(self) -> Result<ImageFolder> {
        self.changed(|images| images.is_scaled = true)
    }

    /// Refuses images with more pixels than this, in place of [`MOST_PIXELS`].
    pub fn most_pixels(self, pixels: usize) -> ImageFolder {
        ImageFolder { most_pixels: pixels, ..self }
    }

    /// The names of the classes, by number.
    pub fn classes(&self) -> &[String] {
        &self.files.classes
    }

    /// The file that a sample is read from.
    ///
    /// # Errors
    /// If there is no such sample.
    pub fn path(&self, sample: usize) -> Result<PathBuf> {
        let samples = self.files.len();
        if sample >= samples {
            return Err(ErrorKind::NoSuchSample { sample, samples }.into());
        }
        let class = &self.files.classes[self.files.class(sample)];
        Ok(self.folder.join(class).join(self.files.name(sample)))
    }

    fn changed(mut self, change: impl FnOnce(&mut ImageFolder)) -> Result<ImageFolder> {
        change(&mut self);
        self.fields = fields(self.size, self.channels, self.is_scaled, self.has_labels)?;
        Ok(self)
    }

    /// Looks at some images for what reading them takes. Those that cannot be read are refused when they are.
    fn measure(&self) {
        let mut file = Vec::new();
        for sample in (0..self.files.len()).step_by(self.files.len().div_ceil(MEASURED)) {
            if self.read_file(sample, &mut file).is_ok() {
                let decoding = measure(&file, Channels::Rgb).unwrap_or(0);
                self.most_taken.fetch_max((file.capacity() + decoding) as u64, Ordering::Relaxed);
            }
        }
    }

    fn read_file(&self, sample: usize, into: &mut Vec<u8>) -> Result<()> {
        let path = self.path(sample)?;
        let failed = |error: std::io::Error| file_error(&path, sample, format!("it cannot be read: {error}"));
        // Opening a pipe would wait for somebody who writes.
        let found = std::fs::metadata(&path).map_err(failed)?;
        let most = self.most_pixels.saturating_mul(MOST_BYTES_OF_A_PIXEL) as u64;
        if !found.is_file() || found.len() > most {
            let reason =
                format!("it is no regular file of at most {most} bytes, which is enough for any image");
            return Err(file_error(&path, sample, reason));
        }
        into.clear();
        into.reserve_exact(found.len() as usize);
        let read = File::open(&path).map_err(failed)?.take(found.len()).read_to_end(into).map_err(failed)?;
        if (read as u64) < found.len() {
            return Err(file_error(&path, sample, "it became shorter while it was read".to_string()));
        }
        Ok(())
    }

    /// Decodes the image of a sample and shows it.
    fn with_image(
        &self,
        sample: usize,
        then: impl FnOnce(Image<'_, u8>, &mut Resizer, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut scratch = self.idle().pop().unwrap_or_default();
        let Scratch { file, decoded, resizer, resized } = &mut scratch;
        let done = self.read_file(sample, file).and_then(|()| {
            let shape = decode_into(file, self.channels, self.most_pixels, decoded)?;
            then(Image::new(&decoded.pixels, shape)?, resizer, resized)
        });
        self.most_taken.fetch_max(scratch.held_bytes() as u64, Ordering::Relaxed);
        self.idle().push(scratch);
        done.map_err(|error| match error.kind() {
            ErrorKind::Image { reason } => match self.path(sample) {
                Ok(path) => file_error(&path, sample, reason.clone()),
                Err(error) => error,
            },
            _ => error,
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        // Whole buffers are taken out and put back: a thread that panicked between left nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an image into the bytes of a sample, which has its number of pixels.
    fn write(&self, image: Image<'_, u8>, out: &mut [u8]) {
        if self.is_scaled {
            for (out, &byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(image.pixels()) {
                *out = (f32::from(byte) / 255.0).to_ne_bytes();
            }
        } else {
            out.copy_from_slice(image.pixels());
        }
    }
}

fn fields(
    size: Option<[usize; 2]>,
    channels: Channels,
    is_scaled: bool,
    has_labels: bool,
) -> Result<Vec<Field>> {
    let element = if is_scaled { Element::F32 } else { Element::U8 };
    let features = match size {
        Some([height, width]) => Field::new("features", element, &[height, width, channels.count()])?,
        None => Field::open("features", element, &[Field::OPEN, Field::OPEN, channels.count()])?,
    };
    let label = has_labels.then(|| Field::new("label", Element::I32, &[])).transpose()?;
    Ok([features].into_iter().chain(label).collect())
}

fn file_error(path: &Path, sample: usize, reason: String) -> Error {
    ErrorKind::File { path: path.to_path_buf(), sample: Some(sample), offset: None, reason }.into()
}

impl Source for ImageFolder {
    fn samples(&self) -> usize {
        self.files.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Allocates what the decoder does for each image: a few kilobytes of tables and rows, or for a progressive JPEG the
    /// coefficients of the whole image.
    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let found = self.locate(sample, field, out)?;
        if field == LABEL {
            out.copy_from_slice(&(self.files.class(sample) as i32).to_ne_bytes());
            return Ok(());
        }
        let Some([height, width]) = self.size else {
            let reason = "images are of different sizes: read whole records, or give a size".to_string();
            return Err(ErrorKind::Field { name: found.name().to_string(), reason }.into());
        };
        let shape = [height, width, self.channels.count()];
        self.with_image(sample, |image, resizer, resized| {
            if !self.is_scaled {
                return resize_with(resizer, image, &mut ImageMut::new(out, shape)?);
            }
            resized.resize(shape.iter().product(), 0);
            let mut small = ImageMut::new(resized, shape)?;
            resize_with(resizer, image, &mut small)?;
            self.write(small.as_image(), out);
            Ok(())
        })
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        if self.has_labels {
            let label = out.reshape(LABEL, &[])?;
            self.read(sample, LABEL, label)?;
        }
        if self.size.is_some() {
            return self.read(sample, FEATURES, out.reshape(FEATURES, self.fields[FEATURES].shape())?);
        }
        self.with_image(sample, |image, _, _| {
            self.write(image, out.reshape(FEATURES, &image.shape())?);
            Ok(())
        })
    }

    /// As much as the largest image took that was read so far, or that was looked at when the folder was opened: the file, its
    /// decoded pixels, and what resizing needs.
    fn reading_bytes(&self) -> u64 {
        self.most_taken.load(Ordering::Relaxed)
    }

    /// The names of the files. What reading takes ([`reading_bytes`](Source::reading_bytes)) is kept between images.
    fn resident_bytes(&self) -> u64 {
        self.files.resident_bytes()
    }

    /// The path of its file, within the folder.
    fn name(&self, sample: usize) -> Option<String> {
        let path = self.path(sample).ok()?;
        Some(path.strip_prefix(&self.folder).unwrap_or(&path).to_string_lossy().into_owned())
    }

    fn promise(&self, field: usize) -> Promise {
        if field == LABEL { Promise::Below(self.files.classes.len()) } else { Promise::Finite }
    }
}

/// The names of many files, without an allocation for each.
#[derive(Debug, Default)]
struct Files {
    classes: Vec<String>,
    /// The number of files up to the end of each class.
    class_ends: Vec<usize>,
    /// All names in a row, each within the folder of its class.
    names: String,
    /// Where each name ends.
    name_ends: Vec<usize>,
}

impl Files {
    fn list(folder: &Path) -> Result<Files> {
        let mut files = Files::default();
        let refuse = |path: &Path, reason: &str| {
            let (path, reason) = (path.to_path_buf(), reason.to_string());
            Error::from(ErrorKind::File { path, sample: None, offset: None, reason })
        };
        let is_folder = |path: &PathBuf| path.is_dir();
        files.classes = entries(folder)?.into_iter().filter(|name| is_folder(&folder.join(name))).collect();
        if files.classes.is_empty() {
            let reason =
                "there are no folders in it: put the images of each class into one, as in cat/12.jpg";
            return Err(refuse(folder, reason));
        }
        for class in files.classes.clone() {
            let path = folder.join(class);
            if !files.add(&path)? {
                let reason =
                    "there is no .png, .jpg or .jpeg in the folder of this class: remove it, or add some";
                return Err(refuse(&path, reason));
            }
        }
        Ok(files)
    }

    /// All images as if they were of one class, whose folder is the one they are in.
    fn list_unlabelled(folder: &Path) -> Result<Files> {
        let mut files = Files { classes: vec![String::new()], ..Files::default() };
        if files.add(folder)? {
            return Ok(files);
        }
        let (path, reason) = (folder.to_path_buf(), "there is no .png, .jpg or .jpeg in it".to_string());
        Err(ErrorKind::File { path, sample: None, offset: None, reason }.into())
    }

    /// Adds the images of the next class, if there are any.
    fn add(&mut self, folder: &Path) -> Result<bool> {
        let mut names = Vec::new();
        find_images(folder, "", 0, &mut names)?;
        names.sort_unstable();
        self.names.reserve_exact(names.iter().map(String::len).sum());
        self.name_ends.reserve_exact(names.len());
        for name in &names {
            self.names.push_str(name);
            self.name_ends.push(self.names.len());
        }
        self.class_ends.push(self.name_ends.len());
        Ok(!names.is_empty())
    }

    fn len(&self) -> usize {
        self.name_ends.len()
    }

    fn class(&self, sample: usize) -> usize {
        self.class_ends.partition_point(|&end| end <= sample)
    }

    fn name(&self, sample: usize) -> &str {
        let first = sample.checked_sub(1).map_or(0, |before| self.name_ends[before]);
        &self.names[first..self.name_ends[sample]]
    }

    fn resident_bytes(&self) -> u64 {
        let classes = self.classes.iter().map(|class| class.capacity() + size_of::<String>()).sum::<usize>();
        let ends = (self.class_ends.capacity() + self.name_ends.capacity()) * size_of::<usize>();
        (classes + ends + self.names.capacity()) as u64
    }
}

/// The names in a folder that do not begin with a dot, in their order.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::from(ErrorKind::Io { what: folder.display().to_string(), error });
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().into_string().map_err(|name| {
            let reason = "its name is not Unicode: rename it".to_string();
            ErrorKind::File { path: folder.join(name), sample: None, offset: None, reason }
        })?;
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Adds the images in a folder and those within, each with the names of the folders that lead to it.
fn find_images(folder: &Path, before: &str, depth: usize, into: &mut Vec<String>) -> Result<()> {
    for name in entries(folder)? {
        let path = folder.join(&name);
        let ending =
            path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        let name = format!("{before}{name}");
        if ENDINGS.contains(&&*ending) {
            into.push(name);
        } else if path.is_dir() && depth < DEEPEST {
            find_images(&path, &format!("{name}/"), depth + 1, into)?;
        }
    }
    Ok(())
}

/// A folder that a workload names.
#[derive(Debug)]
struct Described {
    path: PathBuf,
    size: [usize; 2],
    scale: bool,
    grey: bool,
    has_labels: bool,
    /// How to get the images, if they are not there.
    missing: Option<String>,
}

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let path = options.need_path("path")?;
    let size = [options.need_count("height")?, options.need_count("width")?];
    let (scale, grey) =
        (options.find_flag("scale")?.unwrap_or(false), options.find_flag("grey")?.unwrap_or(false));
    let (has_labels, missing) = (options.wants_answer(), options.find_text("missing")?);
    Ok(Box::new(Described { path, size, scale, grey, has_labels, missing }))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        Answer::Classes
    }

    fn open(&self) -> Result<Dataset> {
        if let (Some(missing), false) = (&self.missing, self.path.exists()) {
            let (path, reason) = (self.path.clone(), format!("there is no such folder; {missing}"));
            return Err(ErrorKind::File { path, sample: None, offset: None, reason }.into());
        }
        let opened = if self.has_labels { ImageFolder::new } else { ImageFolder::unlabelled };
        let mut images = opened(&self.path)?.size(self.size[0], self.size[1])?;
        if self.scale {
            images = images.scaled()?;
        }
        if self.grey {
            images = images.grey()?;
        }
        Dataset::new(images)
    }
}
