//! Images that Pillow wrote (`scripts/export_images.py`), decoded, resized and changed; folders of them; and what is said of
//! files that are cut off, spoiled or claim too much.

use plimsoll_data::image::{
    Channels, Image, ImageMut, MOST_PIXELS, crop, decode, flip, normalize, random_crop, resize,
};
use plimsoll_data::{Dataset, Draws, Element, ErrorKind, ImageFolder, Record, Source};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// All images, by class and name.
fn fixtures() -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    entries(&data("pictures")).iter().flat_map(|class| entries(class)).collect()
}

/// The shape and pixels that Pillow gave of an image, after what the ending says.
fn expected(image: &Path, ending: &str) -> ([usize; 3], Vec<u8>) {
    let name = format!("pictures-expected/{}.{ending}", image.file_name().unwrap().to_str().unwrap());
    let bytes = fs::read(data(&name)).unwrap();
    let extent = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    ([extent(0), extent(2), 3], bytes[4..].to_vec())
}

/// How far the values of two images lie apart at most.
fn distance(left: &[u8], right: &[u8]) -> u8 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| left.abs_diff(*right)).max().unwrap()
}

fn is_png(path: &Path) -> bool {
    path.extension().unwrap() == "png"
}

fn decoded(path: &Path, channels: Channels) -> ([usize; 3], Vec<u8>) {
    let mut pixels = Vec::new();
    let shape = decode(&fs::read(path).unwrap(), channels, MOST_PIXELS, &mut pixels);
    (shape.unwrap_or_else(|error| panic!("{}: {error}", path.display())), pixels)
}

#[test]
fn every_kind_of_image_is_decoded_as_pillow_does() {
    let fixtures = fixtures();
    assert_eq!(fixtures.len(), 30);
    for path in fixtures {
        let ((shape, pixels), (wanted_shape, wanted)) =
            (decoded(&path, Channels::Rgb), expected(&path, "rgb"));
        assert_eq!(shape, wanted_shape, "{}", path.display());
        // JPEG leaves it to decoders how they round.
        let apart = distance(&pixels, &wanted);
        assert!(apart <= if is_png(&path) { 0 } else { 4 }, "{}: {apart} levels apart", path.display());
    }
}

#[test]
fn grey_is_the_brightness_of_the_colours() {
    for path in fixtures() {
        let ((shape, grey), (_, rgb)) = (decoded(&path, Channels::Grey), decoded(&path, Channels::Rgb));
        assert_eq!(shape[2], 1);
        let brightness = |rgb: &[u8]| {
            (0.299 * f32::from(rgb[0]) + 0.587 * f32::from(rgb[1]) + 0.114 * f32::from(rgb[2])).round() as u8
        };
        let wanted: Vec<u8> = rgb.chunks_exact(3).map(brightness).collect();
        // The brightness of a JPEG is stored as such, and colours beyond the range of bytes are cut off.
        assert!(distance(&grey, &wanted) <= if is_png(&path) { 1 } else { 6 }, "{}", path.display());
    }
}

#[test]
fn images_are_resized_as_pillow_does() {
    for name in ["jpeg/rgb.jpg", "png/rgb.png", "jpeg/orientation-6.jpg"] {
        let path = data("pictures").join(name);
        let (shape, pixels) = expected(&path, "rgb");
        for ending in ["resized", "enlarged"] {
            let (size, wanted) = expected(&path, ending);
            let mut small = vec![0; wanted.len()];
            let from = Image::new(&pixels, shape).unwrap();
            resize(from, &mut ImageMut::new(&mut small, size).unwrap()).unwrap();
            assert!(distance(&small, &wanted) <= 1, "{name} {ending}");
        }
    }
}

#[test]
fn a_folder_gives_resized_images_and_the_numbers_of_their_classes() {
    let images = ImageFolder::new(data("pictures")).unwrap().size(10, 7).unwrap();
    assert_eq!(images.classes(), ["jpeg", "png"]);
    assert_eq!(
        (images.samples(), images.fields()[0].to_string()),
        (30, "features: u8 [10, 7, 3]".to_string())
    );
    let (mut features, mut label, mut compared) = (vec![0; 10 * 7 * 3], [0; 4], 0);
    for sample in 0..images.samples() {
        let path = images.path(sample).unwrap();
        images.read(sample, 0, &mut features).unwrap();
        images.read(sample, 1, &mut label).unwrap();
        assert_eq!(i32::from_ne_bytes(label), i32::from(is_png(&path)));
        if ["rgb.jpg", "rgb.png", "orientation-6.jpg"].contains(&path.file_name().unwrap().to_str().unwrap())
        {
            assert!(distance(&features, &expected(&path, "resized").1) <= 4, "{}", path.display());
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
    // The names are all that is kept; the few buffers of one thread are said of as such.
    assert!(images.resident_bytes() < 1200, "{}", images.resident_bytes());
    assert!((2000..20_000).contains(&images.reading_bytes()), "{}", images.reading_bytes());
}

#[test]
fn a_folder_without_a_size_gives_records_of_every_shape() {
    let images = ImageFolder::new(data("pictures")).unwrap();
    let fields = images.fields().to_vec();
    assert_eq!(fields[0].to_string(), "features: u8 [?, ?, 3]");
    let mut record = Record::new(&fields.into());
    for sample in 0..images.samples() {
        images.read_record(sample, &mut record).unwrap();
        let path = images.path(sample).unwrap();
        let (shape, wanted) = expected(&path, "rgb");
        assert_eq!(record.shape_of("features").unwrap(), shape);
        assert!(distance(record.get("features").unwrap(), &wanted) <= 4);
        assert_eq!(record.get::<i32>("label").unwrap(), [i32::from(is_png(&path))]);
    }
    let error = images.read(0, 0, &mut []).unwrap_err().to_string();
    assert!(error.contains("read with the whole record"), "{error}");
}

#[test]
fn features_can_be_floats_of_one_channel() {
    let images =
        ImageFolder::new(data("pictures")).unwrap().size(16, 24).unwrap().grey().unwrap().scaled().unwrap();
    assert_eq!(images.fields()[0].to_string(), "features: f32 [16, 24, 1]");
    let sample = (0..30).find(|&sample| images.path(sample).unwrap().ends_with("png/grey.png")).unwrap();
    let mut record = Record::new(&images.fields().to_vec().into());
    images.read_record(sample, &mut record).unwrap();
    let (_, wanted) = expected(&images.path(sample).unwrap(), "rgb");
    let wanted: Vec<f32> = wanted.iter().step_by(3).map(|&byte| f32::from(byte) / 255.0).collect();
    assert_eq!(record.get::<f32>("features").unwrap(), wanted);
}

#[test]
fn samples_are_the_same_on_every_thread_and_in_every_order() {
    let images = ImageFolder::new(data("pictures")).unwrap().size(9, 9).unwrap();
    let read = |sample: usize| {
        let mut features = vec![0; 9 * 9 * 3];
        images.read(sample, 0, &mut features).unwrap();
        features
    };
    let forwards: Vec<Vec<u8>> = (0..30).map(read).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..30).rev().map(read).collect::<Vec<_>>())).collect();
        for thread in threads {
            let mut backwards = thread.join().unwrap();
            backwards.reverse();
            assert_eq!(backwards, forwards);
        }
    });
}

#[test]
fn folders_within_a_class_are_searched_and_what_is_hidden_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let image = fs::read(data("pictures/png/rgb.png")).unwrap();
    for name in ["b/2.png", "b/deep/down/1.PNG", "b/.hidden.png", "a/x.png", "b/notes.txt", ".cache/x.png"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &image).unwrap();
    }
    fs::write(folder.path().join("README"), "").unwrap();
    let images = ImageFolder::new(folder.path()).unwrap();
    let paths: Vec<PathBuf> = (0..images.samples()).map(|sample| images.path(sample).unwrap()).collect();
    assert_eq!(paths, ["a/x.png", "b/2.png", "b/deep/down/1.PNG"].map(|name| folder.path().join(name)));
    assert_eq!(images.classes(), ["a", "b"]);
    assert!(images.path(3).is_err());
}

#[test]
fn images_of_other_kinds_are_not_passed_over_silently() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cat")).unwrap();
    let jpeg = fs::read(data("pictures/jpeg/rgb.jpg")).unwrap();
    for (name, file) in
        [("a.jfif", &jpeg[..]), ("b.gif", b"GIF89a"), ("c.webp", b""), ("d.jpg", &jpeg), ("Thumbs.db", b"x")]
    {
        fs::write(folder.path().join("cat").join(name), file).unwrap();
    }
    let images = ImageFolder::new(folder.path()).unwrap().size(4, 4).unwrap();
    let told: Vec<String> = (0..images.samples())
        .map(|sample| {
            images.read(sample, 0, &mut [0; 48]).map_or_else(|error| error.to_string(), |()| String::new())
        })
        .collect();
    let [jfif, gif, webp, jpg] = &told[..] else { panic!("{told:?}") };
    assert!(jfif.is_empty() && jpg.is_empty(), "{told:?}");
    assert!(gif.contains("b.gif, sample 1: it begins with [47, 49, 46, 38]"), "{gif}");
    assert!(gif.ends_with("neither a PNG nor a JPEG; convert it, or remove it"), "{gif}");
    assert!(webp.ends_with("c.webp, sample 2: it is empty"), "{webp}");
    // Asked for, they are left out and counted.
    let mut records = Dataset::new(images).unwrap().skip_errors(2).records(0).unwrap();
    let mut read = 0;
    while records.read().unwrap().is_some() {
        read += 1;
    }
    let skipped: u64 = records.report().stages.iter().map(|stage| stage.skipped).sum();
    assert_eq!((read, skipped), (2, 2));
}

#[test]
fn folders_that_are_no_folders_of_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = || ImageFolder::new(folder.path()).unwrap_err().to_string();
    assert!(refusal().contains("put the images of each class into one"));
    fs::create_dir(folder.path().join("cat")).unwrap();
    assert!(refusal().contains("cat: there is no .png, .jpg or .jpeg"));
    assert!(matches!(ImageFolder::new(folder.path().join("none")).unwrap_err().kind(), ErrorKind::Io { .. }));
}

#[test]
fn a_broken_file_is_an_error_with_its_path_and_sample() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cat")).unwrap();
    fs::write(folder.path().join("cat/a.png"), fs::read(data("pictures/png/rgb.png")).unwrap()).unwrap();
    fs::write(folder.path().join("cat/b.png"), b"not an image").unwrap();
    let images = ImageFolder::new(folder.path()).unwrap().size(4, 4).unwrap();
    let mut features = [0; 48];
    images.read(0, 0, &mut features).unwrap();
    let error = images.read(1, 0, &mut features).unwrap_err().to_string();
    assert!(error.contains("b.png, sample 1") && error.contains("neither a PNG nor a JPEG"), "{error}");
    fs::remove_file(folder.path().join("cat/b.png")).unwrap();
    let error = images.read(1, 0, &mut features).unwrap_err().to_string();
    assert!(error.contains("b.png, sample 1: it cannot be read"), "{error}");
}

#[test]
fn an_image_that_claims_more_pixels_than_the_limit_or_its_bytes_is_refused() {
    let refusal =
        |bytes: &[u8], most| decode(bytes, Channels::Rgb, most, &mut Vec::new()).unwrap_err().to_string();
    let png = fs::read(data("pictures/png/rgb.png")).unwrap();
    assert!(refusal(&png, 16 * 24 - 1).contains("16 x 24 pixels, more than the limit of 383"));
    let jpeg = fs::read(data("pictures/jpeg/progressive.jpg")).unwrap();
    let size = jpeg.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap() + 5;
    let mut huge = jpeg.clone();
    huge[size..size + 4].fill(0xff);
    assert!(refusal(&huge, MOST_PIXELS).contains("65535 x 65535 pixels, more than the limit"));
    huge[size..size + 4].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert!(refusal(&huge, MOST_PIXELS).contains("8192 x 8192 pixels, more than its bytes can hold"));
}

#[test]
fn a_jpeg_with_a_few_bytes_too_many_before_its_end_is_decoded() {
    for name in ["rgb.jpg", "progressive.jpg", "restarts.jpg"] {
        let path = data("pictures/jpeg").join(name);
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 2;
        bytes.splice(end..end, [0; 3]);
        let mut pixels = Vec::new();
        decode(&bytes, Channels::Rgb, MOST_PIXELS, &mut pixels).unwrap();
        assert!(distance(&pixels, &expected(&path, "rgb").1) <= 4, "{name}");
    }
}

#[test]
fn a_cut_image_is_refused_or_whole() {
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        let (_, wanted) = decoded(&path, Channels::Rgb);
        let mut pixels = Vec::new();
        for length in 0..bytes.len() {
            if decode(&bytes[..length], Channels::Rgb, MOST_PIXELS, &mut pixels).is_ok() {
                assert!(pixels == wanted, "{} cut to {length} of {}", path.display(), bytes.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn changed_bytes_never_panic_or_take_more_than_the_limit(
        file in 0usize..30,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        grey: bool,
    ) {
        let mut bytes = fs::read(&fixtures()[file]).unwrap();
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        let (mut pixels, channels) = (Vec::new(), if grey { Channels::Grey } else { Channels::Rgb });
        if let Ok(shape) = decode(&bytes, channels, 1 << 20, &mut pixels) {
            prop_assert_eq!(pixels.len(), shape.iter().product::<usize>());
        }
        prop_assert!(pixels.capacity() <= 4 << 20);
    }

    #[test]
    fn a_crop_is_where_it_was(height in 1usize..9, width in 1usize..9, top in 0usize..9, left in 0usize..9, seed: u64) {
        let pixels: Vec<i32> = (0..8 * 9 * 2).collect();
        let from = Image::new(&pixels, [8, 9, 2]).unwrap();
        let mut out = vec![0; height * width * 2];
        let mut to = ImageMut::new(&mut out, [height, width, 2]).unwrap();
        let fits = top + height <= 8 && left + width <= 9;
        prop_assert_eq!(crop(from, top, left, &mut to).is_ok(), fits);
        if fits {
            for (place, pixel) in out.chunks_exact(2).enumerate() {
                let first = ((top + place / width) * 9 + left + place % width) * 2;
                prop_assert_eq!(pixel, &pixels[first..][..2]);
            }
        }
        let mut draws = Draws::new(seed, 0, 0);
        prop_assert_eq!(random_crop(from, &mut ImageMut::new(&mut out, [height, width, 2]).unwrap(), &mut draws).is_ok(), height <= 8);
    }

    #[test]
    fn a_flip_mirrors_each_row_and_two_change_nothing(height in 1usize..5, width in 1usize..7) {
        let pixels: Vec<u8> = (0..height * width * 3).map(|value| value as u8).collect();
        let mut flipped = pixels.clone();
        flip(&mut ImageMut::new(&mut flipped, [height, width, 3]).unwrap());
        for (row, mirrored) in pixels.chunks_exact(width * 3).zip(flipped.chunks_exact(width * 3)) {
            prop_assert!(row.chunks_exact(3).eq(mirrored.chunks_exact(3).rev()));
        }
        flip(&mut ImageMut::new(&mut flipped, [height, width, 3]).unwrap());
        prop_assert_eq!(flipped, pixels);
    }
}

#[test]
fn every_place_is_cropped_from_some_time() {
    let pixels: Vec<i32> = (0..16).collect();
    let mut seen = [false; 16];
    for element in 0..200 {
        let mut corner = [0; 4];
        let mut to = ImageMut::new(&mut corner, [2, 2, 1]).unwrap();
        random_crop(Image::new(&pixels, [4, 4, 1]).unwrap(), &mut to, &mut Draws::new(1, 0, element))
            .unwrap();
        seen[corner[0] as usize] = true;
    }
    let places: Vec<usize> = (0..16).filter(|&place| seen[place]).collect();
    assert_eq!(places, [0, 1, 2, 4, 5, 6, 8, 9, 10]);
}

#[test]
fn normalizing_subtracts_the_mean_and_divides_by_the_deviation_of_each_channel() {
    let from = Image::new(&[0, 255, 51, 102], [1, 2, 2]).unwrap();
    let mut out = [0.0; 4];
    normalize(from, &[0.5, 0.2], &[0.5, 0.4], &mut ImageMut::new(&mut out, [1, 2, 2]).unwrap()).unwrap();
    let wanted = [-1.0, 2.0, -0.6, 0.5];
    assert!(out.iter().zip(wanted).all(|(out, wanted)| f32::abs(out - wanted) < 1e-6), "{out:?}");
    for (mean, deviation) in
        [(&[0.5][..], &[0.5, 0.5][..]), (&[0.5, 0.5], &[0.5, 0.0]), (&[f32::NAN, 0.0], &[1.0, 1.0])]
    {
        let mut to = ImageMut::new(&mut out, [1, 2, 2]).unwrap();
        assert!(normalize(from, mean, deviation, &mut to).is_err());
    }
}

#[test]
fn images_of_other_channels_and_empty_ones_are_refused() {
    let mut out = [0; 6];
    let from = Image::new(&[1, 2, 3], [1, 1, 3]).unwrap();
    assert!(resize(from, &mut ImageMut::new(&mut out, [2, 3, 1]).unwrap()).is_err());
    assert!(resize(from, &mut ImageMut::new(&mut [], [0, 3, 3]).unwrap()).is_err());
    assert!(Image::new(&[1, 2, 3], [1, 2, 3]).is_err());
    assert!(Image::new(&[1u8, 2, 3], [usize::MAX, 2, 3]).is_err());
}

#[test]
fn a_folder_is_a_data_set_that_is_split_and_checked() {
    let images = ImageFolder::new(data("pictures")).unwrap().size(5, 6).unwrap().scaled().unwrap();
    let split = Dataset::new(images).unwrap().split(0.8, 3).unwrap();
    assert_eq!(split.train.fields()[0].element(), Element::F32);
    split.train.check().unwrap();
    split.train.check_labels("label", 2).unwrap();
    assert!(split.train.check_labels("label", 1).is_err());
}
