"""Writes tests/data/pictures: small images of every kind that Pillow saves, in a folder for each class, and their pixels.

Run with: pip install pillow==13.* numpy==2.* && python export_images.py

For `pictures/CLASS/NAME.EXT` there is `pictures-expected/NAME.EXT.rgb`: height and width as two little-endian u16, then
the RGB bytes of the upright image, row by row. `NAME.EXT.resized` is the same after a bilinear resize to 10 x 7 (height x
width), and `NAME.EXT.enlarged` after one to 40 x 50.
"""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

data = pathlib.Path(__file__).parent.parent / "tests" / "data"
images, expected = data / "pictures", data / "pictures-expected"
for folder in [images / "jpeg", images / "png", expected]:
    folder.mkdir(parents=True, exist_ok=True)

# A smooth image, so that JPEG loses little, without any symmetry.
height, width = 16, 24
y, x = np.mgrid[0:height, 0:width]
smooth = np.stack([x * 10, y * 15, (x * 4 + y * 6 + 20)], axis=-1).clip(0, 255).astype("u1")
smooth[2:6, 3:9] = [200, 30, 60]
rgb = Image.fromarray(smooth)
grey = rgb.convert("L")
alpha = Image.fromarray(((x + y) * 6).astype("u1"))


def keep(name, upright):
    """Writes what is expected of a file."""
    upright = upright.convert("RGB")
    for ending, image in [
        ("rgb", upright),
        ("resized", upright.resize((7, 10), Image.Resampling.BILINEAR)),
        ("enlarged", upright.resize((50, 40), Image.Resampling.BILINEAR)),
    ]:
        if ending == "rgb" or name in ["rgb.jpg", "rgb.png", "orientation-6.jpg"]:
            head = struct.pack("<HH", image.height, image.width)
            (expected / f"{name}.{ending}").write_bytes(head + image.tobytes())


def jpeg(name, image, **options):
    image.save(images / "jpeg" / name, "JPEG", quality=90, **options)
    keep(name, ImageOps.exif_transpose(Image.open(images / "jpeg" / name)))


jpeg("rgb.jpg", rgb)
jpeg("full-chroma.jpg", rgb, subsampling="4:4:4")
jpeg("half-chroma.jpeg", rgb, subsampling="4:2:2")
jpeg("progressive.jpg", rgb, progressive=True)
jpeg("restarts.jpg", rgb, restart_marker_rows=1)
jpeg("grey.JPG", grey)
jpeg("cmyk.jpg", rgb.convert("CMYK"))
# The same numbers, said to be brightness and colour in place of inks.
inks = (images / "jpeg" / "cmyk.jpg").read_bytes()
transform = inks.index(b"Adobe") + 11
(images / "jpeg" / "ycck.jpg").write_bytes(inks[:transform] + b"\2" + inks[transform + 1 :])
keep("ycck.jpg", Image.open(images / "jpeg" / "ycck.jpg"))
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    jpeg(f"orientation-{orientation}.jpg", rgb, exif=exif)


def png(name, image, upright=None, **options):
    image.save(images / "png" / name, "PNG", **options)
    keep(name, upright or ImageOps.exif_transpose(Image.open(images / "png" / name)))


png("rgb.png", rgb)
png("grey.png", grey)
png("grey-alpha.png", Image.merge("LA", [grey, alpha]))
png("rgba.png", Image.merge("RGBA", [*rgb.split(), alpha]))
palette = rgb.quantize(13)
png("palette.png", palette)
png("palette-transparent.png", palette, transparency=3)
png("two-colours.png", rgb.quantize(2), bits=1)
png("one-bit.png", grey.convert("1"))
png("transparent-colour.png", rgb, transparency=(200, 30, 60))
exif = Image.Exif()
exif[0x0112] = 6
png("orientation-6.png", rgb, exif=exif)

# Of 16 bits the upper eight are kept.
deep = (np.asarray(grey).astype("u2") << 8) | 0xAB
png("grey-16.png", Image.fromarray(deep), upright=grey)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def raw_png(name, depth, colour, rows, interlaced=False):
    """Kinds that Pillow reads but does not write."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    (images / "png" / name).write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


raw_png("rgb-16.png", 16, 2, (smooth.astype(">u2") * 256 + 0x40).astype(">u2").reshape(height, -1).view("u1"))
keep("rgb-16.png", rgb)
four = np.asarray(grey) >> 4
raw_png("grey-4.png", 4, 0, (four[:, 0::2] << 4 | four[:, 1::2]).astype("u1"))
keep("grey-4.png", Image.open(images / "png" / "grey-4.png"))
# The seven passes of Adam7: first row and column, and the steps between.
passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
rows = [row.reshape(-1) for a, b, c, d in passes for row in smooth[a::c, b::d]]
raw_png("interlaced.png", 8, 2, rows, interlaced=True)
keep("interlaced.png", Image.open(images / "png" / "interlaced.png"))
