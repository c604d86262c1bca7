"""Writes the zoo: networks that nobody tuned the engine for, as workloads.

    python benches/zoo/make.py FOLDER

Half of them (`fit`) are what the tables of a device's profile may be fitted to, the other half (`test`) are what the
forecasts by that profile are judged on. Which is which is the prefix of the file's name. They are made by a script
since most repeat a block many times.
"""

import sys
from pathlib import Path

OUT = Path(sys.argv[1])

IMAGES = 'kind = "synthetic"\nsamples = 4096\nfeatures = [{0}, {0}, 3]\nclasses = 1000'
TOKENS = 'kind = "synthetic-tokens"\nsamples = 2048\nvocabulary = {1}\nlength = {0}'


def write(name, about, data, layers, batch, precision="bf16", loss="sparse_cross_entropy"):
    layers = ",\n  ".join(layers)
    text = f'''about = "{about}"
loss = "{loss}"

[data]
{data}

[model]
kind = "sequential"
layers = [
  {layers}
]

[optimizer]
kind = "adam"
rate = 0.0003

[train]
batch = {batch}
steps = 100
precision = "{precision}"
'''
    (OUT / f"{name}.toml").write_text(text)


def conv(filters, window, **more):
    extra = "".join(f", {key} = {value}" for key, value in more.items())
    return f"{{ conv = {filters}, window = [{window}, {window}]{extra} }}"


def residual(layers, projection=None):
    inner = ", ".join(layers)
    more = f", projection = [{projection}]" if projection else ""
    return f"{{ residual = [{inner}]{more} }}"


def dense(units, **more):
    extra = "".join(f", {key} = {value}" for key, value in more.items())
    return f"{{ dense = {units}{extra} }}"


SAME, NO_BIAS = '"same"', "false"


def convnext(depths, widths):
    layers = [conv(widths[0], 4, stride="[4, 4]"), '"layer_norm"']
    for stage, (depth, width) in enumerate(zip(depths, widths)):
        if stage:
            layers += ['"layer_norm"', conv(width, 2, stride="[2, 2]")]
        for _ in range(depth):
            layers.append(
                residual([conv(width, 7, padding=SAME, groups=width), '"layer_norm"', dense(4 * width, activation='"gelu"'), dense(width)])
            )
    return layers + ['"global_mean_pool"', '"layer_norm"', dense(1000)]


def inverted(inside, outside, expand, stride):
    layers = []
    if expand > 1:
        layers += [conv(inside * expand, 1, bias=NO_BIAS), '"batch_norm"', '"relu"']
    wide = inside * expand
    layers += [conv(wide, 3, padding=SAME, groups=wide, stride=f"[{stride}, {stride}]", bias=NO_BIAS), '"batch_norm"', '"relu"']
    layers += [conv(outside, 1, bias=NO_BIAS), '"batch_norm"']
    return [residual(layers)] if stride == 1 and inside == outside else layers


def mobilenet():
    layers = [conv(32, 3, padding=SAME, stride="[2, 2]", bias=NO_BIAS), '"batch_norm"', '"relu"']
    inside = 32
    for expand, outside, count, stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]:
        for n in range(count):
            layers += inverted(inside, outside, expand, stride if n == 0 else 1)
            inside = outside
    return layers + [conv(1280, 1, bias=NO_BIAS), '"batch_norm"', '"relu"', '"global_mean_pool"', dense(1000)]


def basic(width, stride, inside):
    body = [
        conv(width, 3, padding=SAME, stride=f"[{stride}, {stride}]", bias=NO_BIAS), '"batch_norm"', '"relu"',
        conv(width, 3, padding=SAME, bias=NO_BIAS), '"batch_norm"',
    ]
    projection = conv(width, 1, stride=f"[{stride}, {stride}]", bias=NO_BIAS) if stride > 1 or inside != width else None
    return [residual(body, projection), '"relu"']


def resnet18():
    layers = [conv(64, 7, padding=SAME, stride="[2, 2]", bias=NO_BIAS), '"batch_norm"', '"relu"', "{ max_pool = [3, 3], stride = [2, 2], padding = 1 }"]
    inside = 64
    for width, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        layers += basic(width, stride, inside) + basic(width, 1, width)
        inside = width
    return layers + ['"global_mean_pool"', dense(1000)]


def vit(width, heads, depth, patch, tokens):
    layers = [conv(width, patch, stride=f"[{patch}, {patch}]"), f"{{ reshape = [{tokens}, {width}] }}"]
    layers += [f"{{ block = {heads} }}"] * depth
    return layers + ['"layer_norm"', f"{{ reshape = [{tokens}, 1, {width}] }}", '"global_mean_pool"', dense(1000)]


def language(width, heads, depth, vocabulary, causal=True):
    flag = ", causal = true" if causal else ""
    return [f"{{ embedding = {vocabulary}, width = {width} }}"] + [f"{{ block = {heads}{flag} }}"] * depth + ['"layer_norm"', dense(vocabulary)]


def segmentation():
    layers = [conv(64, 3, padding=SAME, activation='"relu"')]
    for dilation in [1, 2, 4, 8, 16, 1]:
        layers.append(residual([conv(64, 3, padding=SAME, dilation=f"[{dilation}, {dilation}]", activation='"relu"'), '"batch_norm"']))
    return layers + [conv(3, 1)]


def autoencoder():
    layers = []
    for width in [32, 64, 128, 256]:
        layers += [conv(width, 3, padding=SAME, stride="[2, 2]", activation='"relu"')]
    for width in [128, 64, 32, 16]:
        layers += ["{ upsample = 2 }", conv(width, 3, padding=SAME, activation='"relu"')]
    return layers + [conv(3, 3, padding=SAME)]


TO_IMAGE = 'kind = "synthetic"\nsamples = 1024\nfeatures = [{0}, {0}, 3]\ntarget = [{0}, {0}, 3]'

write("fit-convnext-femto", "ConvNeXt of depths 2, 2, 6, 2 from 48 channels", IMAGES.format(224), convnext([2, 2, 6, 2], [48, 96, 192, 384]), 64)
write("test-convnext-tiny", "ConvNeXt-T", IMAGES.format(224), convnext([3, 3, 9, 3], [96, 192, 384, 768]), 32)
write("test-mobilenet-v2", "MobileNet-v2", IMAGES.format(224), mobilenet(), 128)
write("fit-separable", "separable convolutions from 64 channels", IMAGES.format(160), [
    conv(64, 3, padding=SAME, stride="[2, 2]"), '"relu"',
    *[layer for width in [64, 128, 256, 512] for layer in (
        conv(width if width == 64 else width // 2, 3, padding=SAME, groups=width if width == 64 else width // 2, stride="[2, 2]"), '"batch_norm"',
        conv(width, 1), '"batch_norm"', '"relu"')],
    '"global_mean_pool"', dense(1000)], 96)
write("fit-resnet18", "ResNet-18", IMAGES.format(224), resnet18(), 128)
write("test-resnet18-small", "ResNet-18 on images of 64 x 64, batch 32", IMAGES.format(64), resnet18(), 32)
write("test-vit-b16", "ViT-B/16", IMAGES.format(224), vit(768, 12, 12, 16, 196), 64)
write("fit-vit-s16", "ViT-S/16", IMAGES.format(224), vit(384, 6, 12, 16, 196), 128)
write("test-gpt-heads-256", "a language model with heads of 256", TOKENS.format(1024, 32000), language(1024, 4, 12, 32000), 8)
write("fit-gpt-heads-32", "a language model with heads of 32", TOKENS.format(512, 16000), language(512, 16, 8, 16000), 16)
write("fit-gpt-heads-128", "a language model with heads of 128", TOKENS.format(1024, 32000), language(1024, 8, 6, 32000), 8)
write("test-bert-base", "an encoder of 12 layers, width 768", TOKENS.format(512, 30000), language(768, 12, 12, 30000, causal=False), 16)
write("fit-gru", "two GRU layers of 512", TOKENS.format(128, 8000), ["{ embedding = 8000, width = 512 }", "{ gru = 512, sequences = true }", "{ gru = 512, sequences = true }", dense(8000)], 32)
write("test-gru-wide", "a GRU of 1024", TOKENS.format(64, 10000), ["{ embedding = 10000, width = 256 }", "{ gru = 1024, sequences = true }", dense(10000)], 64)
write("fit-lstm", "two LSTM layers of 512", TOKENS.format(128, 8000), ["{ embedding = 8000, width = 512 }", "{ lstm = 512, sequences = true }", "{ lstm = 512, sequences = true }", dense(8000)], 32)
write("test-lstm-narrow", "an LSTM of 256, f32", TOKENS.format(100, 4000), ["{ embedding = 4000, width = 128 }", "{ lstm = 256, sequences = true }", dense(4000)], 16, precision="f32")
write("test-segmentation", "dilated convolutions at full resolution", TO_IMAGE.format(128), segmentation(), 16, loss="mse")
write("fit-autoencoder", "strided convolutions down, upsampling back", TO_IMAGE.format(128), autoencoder(), 64, loss="mse")
write("fit-vgg-f32", "convolutions of f32 at many sizes", IMAGES.format(128), [
    layer for width in [32, 64, 128, 256] for layer in (
        conv(width, 3, padding=SAME, activation='"relu"'), conv(width, 3, padding=SAME, activation='"relu"'), '"batch_norm"', "{ max_pool = 2 }")
    ] + [conv(256, 1), '"flatten"', dense(512, activation='"relu"'), dense(1000)], 32, precision="f32")
write("fit-dilated", "dilated convolutions of 32 to 128 channels", TO_IMAGE.format(96), [conv(32, 3, padding=SAME)] + [
    conv(width, 3, padding=SAME, dilation=f"[{gap}, {gap}]", activation='"relu"') for width, gap in [(32, 2), (64, 2), (64, 4), (128, 4), (128, 8)]] + [conv(3, 1)], 16, loss="mse")
write("fit-gpt-heads-192", "a language model with heads of 192", TOKENS.format(512, 16000), language(768, 4, 4, 16000), 8)
write("fit-mlp-f32", "dense layers of 128 to 4096 in f32", 'kind = "synthetic"\nsamples = 8192\nfeatures = [128]\nclasses = 100', [dense(width, activation='"relu"') for width in [128, 256, 512, 1024, 2048, 4096]] + [dense(100)], 512, precision="f32")
write("fit-inverted", "inverted residuals of widths between those of MobileNet", IMAGES.format(192), [
    conv(24, 3, padding=SAME, stride="[2, 2]", bias=NO_BIAS), '"batch_norm"', '"relu"',
    *inverted(24, 24, 1, 1), *inverted(24, 40, 4, 2), *inverted(40, 40, 4, 1), *inverted(40, 80, 6, 2), *inverted(80, 80, 6, 1),
    *inverted(80, 112, 6, 2), *inverted(112, 112, 6, 1), *inverted(112, 192, 6, 2), *inverted(192, 192, 6, 1),
    conv(1024, 1, bias=NO_BIAS), '"batch_norm"', '"relu"', '"global_mean_pool"', dense(1000)], 96)
write("fit-resnet-tiny", "basic blocks of 16 to 128 channels on images of 48 x 48, batch 64", IMAGES.format(48), [
    conv(16, 3, padding=SAME, bias=NO_BIAS), '"batch_norm"', '"relu"', *basic(16, 1, 16), *basic(32, 2, 16), *basic(64, 2, 32), *basic(128, 2, 64),
    *basic(256, 2, 128), '"global_mean_pool"', dense(1000)], 64)
write("fit-gpt-wide", "two blocks of width 1536", TOKENS.format(1024, 20000), language(1536, 24, 3, 20000), 8)
write("fit-conv-f32-large", "convolutions of f32 on large images", IMAGES.format(224), [
    conv(48, 3, padding=SAME, activation='"relu"'), conv(64, 3, padding=SAME, activation='"relu"'), "{ max_pool = 2 }",
    conv(128, 3, padding=SAME, activation='"relu"'), "{ max_pool = 2 }", conv(256, 3, padding=SAME, activation='"relu"'), "{ max_pool = 2 }",
    conv(512, 3, padding=SAME, activation='"relu"'), conv(512, 3, padding=SAME, activation='"relu"'), "{ max_pool = 2 }", conv(512, 3, padding=SAME, activation='"relu"'),
    '"global_mean_pool"', dense(2048), dense(1000)], 48, precision="f32")
write("fit-upsampled", "upsampling between convolutions", TO_IMAGE.format(96), [
    conv(48, 3, padding=SAME, stride="[2, 2]", activation='"relu"'), conv(96, 3, padding=SAME, stride="[2, 2]", activation='"relu"'),
    "{ upsample = 2 }", conv(48, 3, padding=SAME, activation='"relu"'), "{ upsample = 2 }", conv(24, 3, padding=SAME, activation='"relu"'), conv(3, 1)], 32, loss="mse")
write("fit-mlp-deep", "twenty dense layers of 2048", 'kind = "synthetic"\nsamples = 8192\nfeatures = [2048]\nclasses = 1000', [dense(2048, activation='"relu"')] * 20 + [dense(1000)], 1024)
write("test-mlp-f32", "a perceptron of 1024 in f32", 'kind = "synthetic"\nsamples = 8192\nfeatures = [512]\nclasses = 100', [dense(1024, activation='"gelu"')] * 6 + [dense(100)], 256, precision="f32")
