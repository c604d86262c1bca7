"""Writes `zoo.json`: small versions of the networks in `plimsoll::models`, as PyTorch trains them in float64.

    pip install torch numpy
    python zoo.py

A network is a function of parameters `p(name, *shape)` and of inputs to a loss. It is trained for 20 steps of SGD with a
momentum of 0.9 on one batch. The file has the inputs, by shape and, of integers, how many different ones there are; the
rate; the loss of every step before its update; and checksums of the first step's gradients. All numbers are those of
`formula.py`: inputs by the name `<network>/<input>`, parameters by Plimsoll's names.

Layouts are Plimsoll's: images NHWC, filters HWIO (of transposed convolutions, the O first), dense weights [in, out].
"""

import math

import torch
import torch.nn.functional as F

from formula import Parameters, checksum, integers, numbers, write

STEPS = 20
NETWORKS = {}


def network(name, loss, rate=0.02, **inputs):
    """Trains a network; inputs are shapes, or a tuple of a bound and a shape."""
    given = {
        key: integers(f"{name}/{key}", *of) if isinstance(of, tuple) else numbers(f"{name}/{key}", *of)
        for key, of in inputs.items()
    }
    p = Parameters()
    loss(p, **given)
    momentum = {key: torch.zeros_like(value) for key, value in p.made.items()}
    losses, gradients = [], None
    for _ in range(STEPS):
        value = loss(p, **given)
        slopes = dict(zip(p.made, torch.autograd.grad(value, list(p.made.values()))))
        gradients = gradients or {key: checksum(key, slopes[key]) for key in sorted(slopes)}
        losses.append(float(f"{value.item():.9g}"))
        with torch.no_grad():
            for key, slope in slopes.items():
                momentum[key] = 0.9 * momentum[key] + slope
                p.made[key] -= rate * momentum[key]
    shapes = {
        key: {"below": of[0], "shape": list(of[1:])} if isinstance(of, tuple) else {"shape": of}
        for key, of in inputs.items()
    }
    NETWORKS[name] = {"inputs": shapes, "rate": rate, "losses": losses, "gradients": gradients}
    print(f"{name:20} {sum(v.numel() for v in p.made.values()):7} parameters, {losses[0]:.4f} to {losses[-1]:.4f}")


# Layers.


def in_scope(p, scope):
    return lambda name, *shape: p(f"{scope}/{name}", *shape)


def dense(p, scope, x, units, bias=True):
    y = x @ p(f"{scope}/weight", x.shape[-1], units)
    return y + p(f"{scope}/bias", units) if bias else y


def conv(p, scope, x, filters, window, bias=True, groups=1, padding=None, **options):
    """A convolution, centred unless its padding is given."""
    filter = p(f"{scope}/filter", window, window, x.shape[-1] // groups, filters).permute(3, 2, 0, 1).contiguous()
    padding = window // 2 * options.get("dilation", 1) if padding is None else padding
    bias = p(f"{scope}/bias", filters) if bias else None
    return F.conv2d(x.movedim(-1, 1), filter, bias, groups=groups, padding=padding, **options).movedim(1, -1)


def conv_transpose(p, scope, x, filters, window, stride=1, padding=0, bias=True):
    filter = p(f"{scope}/filter", window, window, filters, x.shape[-1]).permute(3, 2, 0, 1).contiguous()
    bias = p(f"{scope}/bias", filters) if bias else None
    return F.conv_transpose2d(x.movedim(-1, 1), filter, bias, stride, padding).movedim(1, -1)


def conv1d(p, scope, x, filters, window, dilation=1):
    filter = p(f"{scope}/filter", window, x.shape[-1], filters).permute(2, 1, 0)
    x = F.pad(x.movedim(-1, 1), ((window - 1) * dilation, 0))
    return F.conv1d(x, filter, p(f"{scope}/bias", filters), dilation=dilation).movedim(1, -1)


def norm_weights(p, scope, width):
    return p(f"{scope}/gamma", width), p(f"{scope}/beta", width)


def batch_norm(p, scope, x):
    weights = norm_weights(p, scope, x.shape[-1])
    return F.batch_norm(x.movedim(-1, 1), None, None, *weights, training=True, eps=1e-5).movedim(1, -1)


def group_norm(p, scope, x, groups):
    return F.group_norm(x.movedim(-1, 1), groups, *norm_weights(p, scope, x.shape[-1]), 1e-5).movedim(1, -1)


def layer_norm(p, scope, x, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], *norm_weights(p, scope, x.shape[-1]), eps)


def rms_norm(p, scope, x):
    return F.rms_norm(x, x.shape[-1:], p(f"{scope}/gamma", x.shape[-1]), 1e-5)


def conv_norm(p, conv_scope, norm_scope, x, filters, window, **options):
    return batch_norm(p, norm_scope, conv(p, conv_scope, x, filters, window, bias=False, **options))


def max_pool(x, *window):
    return F.max_pool2d(x.movedim(-1, 1), *window).movedim(1, -1)


def mean_pool(x, *window):
    return F.avg_pool2d(x.movedim(-1, 1), *window).movedim(1, -1)


def resize(x, size, mode):
    return F.interpolate(x.movedim(-1, 1), size, mode=mode).movedim(1, -1)


def rotary(x, base=10000.0):
    tokens, half = x.shape[1], x.shape[3] // 2
    angle = torch.arange(tokens)[:, None, None] * base ** -(torch.arange(half) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, k, v, **options):
    """[batch, tokens, heads, width]"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options).transpose(1, 2)


def self_attention(p, scope, x, heads, key_value_heads=None, bias=True, turn=None, **options):
    width, few = x.shape[-1], x.shape[-1] // heads * (key_value_heads or heads)
    q, k, v = dense(p, f"{scope}/qkv", x, width + 2 * few, bias).split([width, few, few], -1)
    q, k, v = q.unflatten(-1, (heads, -1)), k.unflatten(-1, (heads * few // width, -1)), v.unflatten(-1, (heads * few // width, -1))
    if turn:
        q, k = turn(q), turn(k)
    return dense(p, f"{scope}/out", attend(q, k, v, **options).flatten(2), width, bias)


def block(p, scope, x, heads):
    """Plimsoll's `TransformerBlock`."""
    x = x + self_attention(p, f"{scope}/attention", layer_norm(p, f"{scope}/ln1", x), heads)
    hidden = F.gelu(dense(p, f"{scope}/mlp/up", layer_norm(p, f"{scope}/ln2", x), 4 * x.shape[-1]))
    return x + dense(p, f"{scope}/mlp/down", hidden, x.shape[-1])


def embed(p, scope, tokens, vocabulary, width):
    return F.embedding(tokens, p(f"{scope}/table", vocabulary, width))


def recurrent(p, scope, x, hidden, gates, first=None):
    """An LSTM (4 gates, one bias) or a GRU (3 gates, two biases)."""
    weights = [p(f"{scope}/input_weight", x.shape[-1], gates * hidden).t().contiguous()]
    weights.append(p(f"{scope}/hidden_weight", hidden, gates * hidden).t().contiguous())
    state = x.new_zeros(1, x.shape[0], hidden) if first is None else first[None]
    if gates == 4:
        bias = p(f"{scope}/bias", 4 * hidden)
        return torch.lstm(x, (state, state), [*weights, bias, torch.zeros_like(bias)], True, 1, 0.0, True, False, True)[0]
    biases = p(f"{scope}/input_bias", 3 * hidden), p(f"{scope}/hidden_bias", 3 * hidden)
    return torch.gru(x, state, [*weights, *biases], True, 1, 0.0, True, False, True)[0]


def classes(function):
    """The cross-entropy of a network's logits."""

    def loss(p, x, y, **more):
        logits = function(p, x, **more)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    return loss


# Networks for images.


def resnet(p, x, blocks, width, bottleneck=False, groups=1, group_width=None, classes=5):
    x = max_pool(conv_norm(p, "stem/conv", "stem/norm", x, width, 7, stride=2).relu(), 3, 2, 1)
    for stage, count in enumerate(blocks):
        for at in range(count):
            q = in_scope(p, f"stage{stage}/block{at}")
            stride, wide = 2 if stage and not at else 1, width << stage
            if bottleneck:
                inside, outside = (wide // width) * (group_width or width) * groups, 4 * wide
                y = conv_norm(q, "conv1", "norm1", x, inside, 1).relu()
                y = conv_norm(q, "conv2", "norm2", y, inside, 3, stride=stride, groups=groups).relu()
                y = conv_norm(q, "conv3", "norm3", y, outside, 1)
            else:
                outside = wide
                y = conv_norm(q, "conv1", "norm1", x, wide, 3, stride=stride).relu()
                y = conv_norm(q, "conv2", "norm2", y, wide, 3)
            if stride > 1 or x.shape[-1] != outside:
                x = conv_norm(q, "projection/conv", "projection/norm", x, outside, 1, stride=stride)
            x = (x + y).relu()
    return dense(p, "head", x.mean((1, 2)), classes)


IMAGES, LABELS = [4, 32, 32, 3], (5, 4)
# Enough images of enough pixels for the statistics of the last stage, and a low rate: norms by few numbers, and activations
# that rounding takes to the other side of zero, cost float32 its digits within a few steps, in PyTorch as well.
MANY = {"x": [8, 48, 48, 3], "y": (5, 8), "rate": 0.0001}
network("resnet18", classes(lambda p, x: resnet(p, x, [2, 2, 2, 2], 4)), **MANY)
network("resnet50", classes(lambda p, x: resnet(p, x, [1, 1, 1, 1], 6, True)), **MANY)
network("resnext", classes(lambda p, x: resnet(p, x, [1, 1, 1, 1], 4, True, 4, 2)), **MANY)


def vgg(p, x, batch_norm):
    for stage, (count, width) in enumerate([(1, 4), (2, 8)]):
        for at in range(count):
            scope = f"stage{stage}/conv{at}"
            x = conv_norm(p, scope, f"stage{stage}/norm{at}", x, width, 3) if batch_norm else conv(p, scope, x, width, 3)
            x = x.relu()
        x = max_pool(x, 2)
    x = x.flatten(1)
    for hidden in "hidden0", "hidden1":
        x = dense(p, hidden, x, 12).relu()
    return dense(p, "head", x, 5)


network("vgg", classes(lambda p, x: vgg(p, x, False)), x=[4, 16, 16, 3], y=LABELS)
network("vgg_norm", classes(lambda p, x: vgg(p, x, True)), x=[4, 16, 16, 3], y=LABELS)


def densenet(p, x):
    x = max_pool(conv_norm(p, "stem/conv", "stem/norm", x, 8, 7, stride=2).relu(), 3, 2, 1)
    for at, layers in enumerate([2, 2]):
        if at:
            y = batch_norm(p, f"transition{at - 1}/norm", x).relu()
            x = mean_pool(conv(p, f"transition{at - 1}/conv", y, x.shape[-1] // 2, 1, bias=False), 2)
        for layer in range(layers):
            q = in_scope(p, f"block{at}/layer{layer}")
            y = conv_norm(q, "conv1", "norm2", batch_norm(q, "norm1", x).relu(), 16, 1).relu()
            x = torch.cat([x, conv(q, "conv2", y, 4, 3, bias=False)], -1)
    return dense(p, "head", batch_norm(p, "norm", x).relu().mean((1, 2)), 5)


network("densenet", classes(densenet), x=IMAGES, y=LABELS)


def inception(p, x):
    x = conv_norm(p, "stem/conv1", "stem/norm1", x, 4, 7, stride=2).relu()
    x = conv_norm(p, "stem/conv2", "stem/norm2", max_pool(x, 3, 2, 1), 4, 1).relu()
    x = conv_norm(p, "stem/conv3", "stem/norm3", x, 8, 3).relu()
    for stage, modules in enumerate([2, 1]):
        x = max_pool(x, 3, 2, 1)
        for at in range(modules):
            q = in_scope(p, f"stage{stage}/module{at}")
            branches = [conv_norm(q, "one/conv", "one/norm", x, 4, 1)]
            for scope, narrow, width, window in ("three", 3, 6, 3), ("five", 2, 3, 5):
                y = conv_norm(q, f"{scope}/reduce", f"{scope}/reduce_norm", x, narrow, 1).relu()
                branches.append(conv_norm(q, f"{scope}/conv", f"{scope}/norm", y, width, window))
            branches.append(conv_norm(q, "pool/conv", "pool/norm", max_pool(x, 3, 1, 1), 3, 1))
            x = torch.cat([branch.relu() for branch in branches], -1)
    return dense(p, "head", x.mean((1, 2)), 5)


network("inception", classes(inception), x=IMAGES, y=LABELS)


def inverted_residual(p, x, inside, outside, window, stride, squeeze, within, gate, activation):
    y = x
    if inside != x.shape[-1]:
        y = activation(conv_norm(p, "expand", "expand_norm", y, inside, 1))
    y = activation(conv_norm(p, "depthwise", "depthwise_norm", y, inside, window, stride=stride, groups=inside))
    if squeeze:
        gates = dense(p, "squeeze/excite", within(dense(p, "squeeze/squeeze", y.mean((1, 2)), squeeze)), inside)
        y = y * gate(gates)[:, None, None, :]
    y = conv_norm(p, "project", "project_norm", y, outside, 1)
    return x + y if stride == 1 and x.shape[-1] == outside else y


def mobilenet(p, x, blocks, last, hidden, activation, within=None, gate=None):
    x = activation(conv_norm(p, "stem/conv", "stem/norm", x, 8, 3, stride=2))
    for at, (inside, outside, window, stride, squeeze, inner) in enumerate(blocks):
        q = in_scope(p, f"block{at}")
        x = inverted_residual(q, x, inside, outside, window, stride, squeeze, within, gate, inner)
    x = activation(conv_norm(p, "last/conv", "last/norm", x, last, 1)).mean((1, 2))
    if hidden:
        x = activation(dense(p, "hidden", x, hidden))
    return dense(p, "head", x, 5)


SMALL = [4, 16, 16, 3]
V2 = [(8, 6, 3, 1, 0, F.relu6), (24, 8, 3, 2, 0, F.relu6), (32, 8, 3, 1, 0, F.relu6)]
V3 = [(8, 8, 3, 1, 0, F.relu), (20, 12, 5, 2, 4, F.relu), (32, 12, 5, 1, 8, F.hardswish)]
B0 = [(8, 6, 3, 1, 2, F.silu), (24, 8, 5, 2, 2, F.silu), (32, 8, 3, 1, 2, F.silu)]
network("mobilenet_v2", classes(lambda p, x: mobilenet(p, x, V2, 16, None, F.relu6)), x=SMALL, y=LABELS)
network(
    "mobilenet_v3",
    classes(lambda p, x: mobilenet(p, x, V3, 16, 24, F.hardswish, F.relu, F.hardsigmoid)),
    x=SMALL,
    y=LABELS,
)
network(
    "efficientnet",
    classes(lambda p, x: mobilenet(p, x, B0, 16, None, F.silu, F.silu, torch.sigmoid)),
    x=SMALL,
    y=LABELS,
)


def convnext(p, x):
    for stage, (depth, width) in enumerate([(1, 6), (2, 8)]):
        if stage == 0:
            x = layer_norm(p, "stem/norm", conv(p, "stem/conv", x, width, 4, stride=4, padding=0), 1e-6)
        else:
            q = in_scope(p, f"downsample{stage}")
            x = conv(q, "conv", layer_norm(q, "norm", x, 1e-6), width, 2, stride=2, padding=0)
        for at in range(depth):
            q = in_scope(p, f"stage{stage}/block{at}")
            y = layer_norm(q, "norm", conv(q, "depthwise", x, width, 7, groups=width), 1e-6)
            x = x + dense(q, "down", F.gelu(dense(q, "up", y, 4 * width)), width) * q("scale", width)
    return dense(p, "head", layer_norm(p, "norm", x.mean((1, 2)), 1e-6), 5)


network("convnext", classes(convnext), x=[4, 32, 32, 3], y=LABELS)


def two_convolutions(p, x, width):
    x = conv_norm(p, "conv1", "norm1", x, width, 3).relu()
    return conv_norm(p, "conv2", "norm2", x, width, 3).relu()


def unet(p, x, upsampling):
    skips, widths = [], [4, 6]
    for level, width in enumerate(widths):
        skips.append(two_convolutions(in_scope(p, f"down{level}"), x, width))
        x = max_pool(skips[-1], 2)
    x = two_convolutions(in_scope(p, "bottom"), x, 12)
    for level in (1, 0):
        q, size = in_scope(p, f"up{level}"), [2 * extent for extent in x.shape[1:3]]
        if upsampling == "nearest":
            raised = F.pad(resize(x, size, "nearest"), (0, 0, 0, 1, 0, 1))
            raised = conv(q, "up", raised, widths[level], 2, padding=0)
        elif upsampling == "bilinear":
            raised = conv(q, "up", resize(x, size, "bilinear"), widths[level], 1)
        else:
            raised = conv_transpose(q, "up", x, widths[level], 2, 2)
        x = two_convolutions(q, torch.cat([skips[level], raised], -1), widths[level])
    return conv(p, "head", x, 3, 1)


PIXELS = (3, 2, 8, 12)
for upsampling in "nearest", "bilinear", "transposed":
    network(f"unet_{upsampling}", classes(lambda p, x: unet(p, x, upsampling)), x=[2, 8, 12, 3], y=PIXELS)


def deeplab(p, x):
    size = x.shape[1:3]
    for scope in "stem0", "stem1":
        x = conv_norm(p, f"{scope}/conv", f"{scope}/norm", x, 6, 3, stride=2).relu()
    for at in range(2):
        q = in_scope(p, f"block{at}")
        y = conv_norm(q, "conv1", "norm1", x, 6, 3, dilation=1 << at).relu()
        x = (x + conv_norm(q, "conv2", "norm2", y, 6, 3, dilation=1 << at)).relu()
    q = in_scope(p, "pyramid")
    branches = [conv_norm(q, "one/conv", "one/norm", x, 6, 1)]
    for at, rate in enumerate([2, 3]):
        branches.append(conv_norm(q, f"rate{at}/conv", f"rate{at}/norm", x, 6, 3, dilation=rate))
    image = conv_norm(q, "image/conv", "image/norm", x.mean((1, 2), keepdim=True), 6, 1)
    branches.append(image.expand_as(x))
    x = conv_norm(q, "project/conv", "project/norm", torch.cat(branches, -1).relu(), 6, 1).relu()
    return resize(conv(p, "head", x, 3, 1), size, "bilinear")


network("deeplab", classes(deeplab), x=[4, 16, 20, 3], y=(3, 4, 16, 20))


def unet3d(p, x):
    def twice(p, x, width):
        for at in "12":
            filter = p(f"conv{at}/filter", 3, 3, 3, x.shape[-1], width).permute(4, 3, 0, 1, 2)
            y = F.conv3d(x.movedim(-1, 1), filter, padding=1).movedim(1, -1)
            x = batch_norm(p, f"norm{at}", y).relu()
        return x

    skip = twice(in_scope(p, "down0"), x, 3)
    x = twice(in_scope(p, "bottom"), F.max_pool3d(skip.movedim(-1, 1), 2).movedim(1, -1), 6)
    raised = F.interpolate(x.movedim(-1, 1), scale_factor=2).movedim(1, -1)
    x = twice(in_scope(p, "up0"), torch.cat([skip, raised], -1), 3)
    return x @ p("head/filter", 1, 1, 1, 3, 3)[0, 0, 0] + p("head/bias", 3)


network("unet3d", classes(unet3d), x=[2, 4, 6, 4, 2], y=(3, 2, 4, 6, 4))


def generator(p, z):
    x = z[:, None, None, :]
    for at in range(2):
        x = conv_transpose(p, f"up{at}/conv", x, 4 << (1 - at), 4, *((1, 0) if at == 0 else (2, 1)), bias=False)
        x = batch_norm(p, f"up{at}/norm", x).relu()
    return conv_transpose(p, "head", x, 3, 4, 2, 1, bias=False).tanh()


def discriminator(p, x):
    x = F.leaky_relu(conv(p, "down0/conv", x, 4, 4, bias=False, stride=2, padding=1), 0.2)
    x = F.leaky_relu(conv_norm(p, "down1/conv", "down1/norm", x, 8, 4, stride=2, padding=1), 0.2)
    return conv(p, "head", x, 1, 4, bias=False, padding=0).reshape(-1)


network("dcgan_generator", lambda p, z, y: F.mse_loss(generator(p, z), y), z=[4, 6], y=[4, 16, 16, 3])
network(
    "dcgan_discriminator",
    lambda p, x, y: F.binary_cross_entropy_with_logits(discriminator(p, x), y.double()),
    x=[4, 16, 16, 3],
    y=(2, 4),
    rate=0.005,
)


def autoencoder(p, x):
    given = x
    for at, width in enumerate([4, 8]):
        x = conv(p, f"down{at}", x, width, 3, stride=2).relu()
    shape = x.shape
    x = dense(p, "spread", dense(p, "latent", x.flatten(1), 5), math.prod(shape[1:])).relu().reshape(shape)
    x = conv_transpose(p, "up0", x, 4, 4, 2, 1).relu()
    return F.mse_loss(conv_transpose(p, "up1", x, 3, 4, 2, 1), given)


network("autoencoder", autoencoder, x=[4, 8, 12, 3])


def patches(p, x, width):
    return conv(p, "patches", x, width, 4, stride=4, padding=0).flatten(1, 2)


def vit(p, x):
    x = patches(p, x, 8)
    x = torch.cat([p("class", 1, 8).expand(x.shape[0], 1, 8), x], 1) + p("positions", x.shape[1] + 1, 8)
    for at in range(2):
        x = block(p, f"block{at}", x, 2)
    return dense(p, "head", layer_norm(p, "ln", x[:, 0]), 5)


network("vit", classes(vit), x=[4, 12, 8, 3], y=LABELS)


def mixer(p, x):
    x = patches(p, x, 8)
    for at in range(2):
        q = in_scope(p, f"block{at}")
        y = layer_norm(q, "ln1", x).transpose(1, 2)
        x = x + dense(q, "tokens/down", F.gelu(dense(q, "tokens/up", y, 5)), y.shape[-1]).transpose(1, 2)
        y = layer_norm(q, "ln2", x)
        x = x + dense(q, "channels/down", F.gelu(dense(q, "channels/up", y, 16)), 8)
    return dense(p, "head", layer_norm(p, "ln", x).mean(1), 5)


network("mixer", classes(mixer), x=[4, 12, 8, 3], y=LABELS)


def diffusion(p, x, t, y):
    widths, groups = [4, 8], 2
    rate = 10000 ** -(torch.arange(2) / 2)
    angle = t[:, None] * rate
    waves = torch.cat([angle.sin(), angle.cos()], 1)
    time = dense(p, "time/out", F.silu(dense(p, "time/hidden", waves, 16)), 16)

    def residual(scope, x, width):
        q = in_scope(p, scope)
        h = conv(q, "conv1", F.silu(group_norm(q, "norm1", x, groups)), width, 3)
        h = h + dense(q, "time", F.silu(time), width)[:, None, None, :]
        h = conv(q, "conv2", F.silu(group_norm(q, "norm2", h, groups)), width, 3)
        return (x if x.shape[-1] == width else conv(q, "skip", x, width, 1)) + h

    h, skips = conv(p, "stem", x, 4, 3), []
    for level, width in enumerate(widths):
        skips.append(residual(f"down{level}/block", h, width))
        h = conv(p, f"down{level}/shrink", skips[-1], width, 3, stride=2) if level == 0 else skips[-1]
    h = residual("bottom/block0", h, 8)
    tokens = group_norm(p, "bottom/norm", h, groups).flatten(1, 2)
    h = h + self_attention(p, "bottom/attention", tokens, 2).reshape(h.shape)
    h = residual("bottom/block1", h, 8)
    h = residual("up1/block", torch.cat([h, skips[1]], -1), 8)
    h = conv(p, "up0/grow", resize(h, skips[0].shape[1:3], "nearest"), 8, 3)
    h = residual("up0/block", torch.cat([h, skips[0]], -1), 4)
    return F.mse_loss(conv(p, "head", F.silu(group_norm(p, "norm", h, groups)), 3, 3), y)


network("diffusion", diffusion, x=[2, 8, 8, 3], t=(1000, 2), y=[2, 8, 8, 3])


# Networks for text.

VOCABULARY = 11
TEXT = (VOCABULARY, 3, 9)


def llama(p, x):
    x = embed(p, "tokens", x, VOCABULARY, 16)
    for at in range(2):
        q = in_scope(p, f"block{at}")
        y = rms_norm(q, "norm1", x)
        x = x + self_attention(q, "attention", y, 4, 2, bias=False, turn=rotary, is_causal=True)
        y = rms_norm(q, "norm2", x)
        gated = F.silu(dense(q, "mlp/gate", y, 20, False)) * dense(q, "mlp/up", y, 20, False)
        x = x + dense(q, "mlp/down", gated, 16, False)
    return dense(p, "head", rms_norm(p, "norm", x), VOCABULARY, False)


network("llama", classes(llama), x=TEXT, y=TEXT)


def bert(p, x, n):
    tokens = x.shape[1]
    mask = (torch.arange(tokens)[None, :] <= n[:, None])[:, None, None, :]
    table = p("tokens/table", VOCABULARY, 8)
    x = layer_norm(p, "ln", F.embedding(x, table) + p("positions/table", 12, 8)[:tokens])
    for at in range(2):
        q = in_scope(p, f"block{at}")
        x = layer_norm(q, "ln1", x + self_attention(q, "attention", x, 2, attn_mask=mask))
        x = layer_norm(q, "ln2", x + dense(q, "down", F.gelu(dense(q, "up", x, 16)), 8))
    x = layer_norm(p, "head/ln", F.gelu(dense(p, "head/dense", x, 8)))
    return x @ table.t() + p("head/bias", VOCABULARY)


network("bert", classes(bert), x=TEXT, n=(9, 3), y=TEXT)


def relative_bias(p, tokens, heads, causal, buckets=8, farthest=6):
    ahead = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
    each, bucket = (buckets, 0) if causal else (buckets // 2, (ahead > 0) * (buckets // 2))
    distance = -ahead.clamp(max=0) if causal else ahead.abs()
    single = each // 2
    far = single + (torch.log(distance.clamp(min=1) / single) / math.log(farthest / single) * (each - single)).long()
    bucket = bucket + torch.where(distance < single, distance, far.clamp(max=each - 1))
    return F.embedding(bucket, p("table", buckets, heads)).permute(2, 0, 1)[None]


def t5_stack(p, x, memory=None):
    tokens, width, heads = x.shape[1], x.shape[-1], 2
    bias = relative_bias(in_scope(p, "bias"), tokens, heads, memory is not None)
    if memory is not None:
        bias = bias.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -math.inf)
    for at in range(2):
        q = in_scope(p, f"block{at}")
        y = rms_norm(q, "norm1", x)
        x = x + self_attention(q, "attention", y, heads, bias=False, attn_mask=bias, scale=1.0)
        if memory is not None:
            y = dense(q, "cross/q", rms_norm(q, "cross_norm", x), width, False)
            k, v = dense(q, "cross/kv", memory, 2 * width, False).chunk(2, -1)
            found = attend(*(z.unflatten(-1, (heads, -1)) for z in (y, k, v)), scale=1.0)
            x = x + dense(q, "cross/out", found.flatten(2), width, False)
        x = x + dense(q, "down", dense(q, "up", rms_norm(q, "norm2", x), 16, False).relu(), width, False)
    return rms_norm(p, "norm", x)


def t5(p, source, x):
    table = p("tokens/table", VOCABULARY, 8)
    memory = t5_stack(in_scope(p, "encoder"), F.embedding(source, table))
    return t5_stack(in_scope(p, "decoder"), F.embedding(x, table), memory) @ table.t() / math.sqrt(8)


network("t5", classes(lambda p, x, source: t5(p, source, x)), source=(VOCABULARY, 3, 13), x=TEXT, y=TEXT)


def language(p, x, gates):
    x = embed(p, "tokens", x, VOCABULARY, 8)
    for at in range(2):
        x = recurrent(p, f"layer{at}", x, 8, gates)
    return dense(p, "head", x, VOCABULARY)


network("lstm", classes(lambda p, x: language(p, x, 4)), x=TEXT, y=TEXT, rate=0.1)
network("gru", classes(lambda p, x: language(p, x, 3)), x=TEXT, y=TEXT, rate=0.1)


def seq2seq(p, x, source, n):
    lengths = n + 1
    states = recurrent(p, "encoder", embed(p, "source", source, 7, 8), 8, 3)
    there = torch.arange(source.shape[1])[None, :] < lengths[:, None]
    first = (states * there[:, :, None]).sum(1) / lengths[:, None]
    decoded = recurrent(p, "decoder", embed(p, "target", x, VOCABULARY, 8), 8, 3, first)
    head = lambda z: z[:, :, None, :]
    found = attend(head(decoded), head(states), head(states), attn_mask=there[:, None, None, :], scale=1.0)[:, :, 0]
    return dense(p, "head", dense(p, "mix", torch.cat([decoded, found], -1), 8).tanh(), VOCABULARY)


network("seq2seq", classes(seq2seq), source=(7, 3, 6), n=(6, 3), x=TEXT, y=TEXT, rate=0.1)


def wavenet(p, x):
    x, seen = embed(p, "levels", x, VOCABULARY, 6), 0
    for at in range(6):
        q, dilation = in_scope(p, f"layer{at}"), 1 << at % 3
        gated = conv1d(q, "filter", x, 6, 2, dilation).tanh() * conv1d(q, "gate", x, 6, 2, dilation).sigmoid()
        seen = seen + conv1d(q, "skip", gated, 6, 1)
        x = x + conv1d(q, "residual", gated, 6, 1) if at < 5 else None
    return conv1d(p, "head", conv1d(p, "hidden", seen.relu(), 6, 1).relu(), VOCABULARY, 1)


network("wavenet", classes(wavenet), x=(VOCABULARY, 2, 20), y=(VOCABULARY, 2, 20))


# Others.


def recommender(p, x, i, y):
    for at, units in enumerate([8, 6]):
        x = dense(p, f"bottom{at}", x, units).relu()
    rows = [x] + [embed(p, f"table{at}", i[:, at], rows, 6) for at, rows in enumerate([9, 7, 20])]
    rows = torch.stack(rows, 1)
    products = rows @ rows.transpose(1, 2)
    seen = torch.cat([x] + [products[:, row, :row] for row in range(1, 4)], 1)
    logits = dense(p, "head", dense(p, "top0", seen, 10).relu(), 1)[:, 0]
    return F.binary_cross_entropy_with_logits(logits, y.double())


network("recommender", recommender, x=[8, 4], i=(7, 8, 3), y=(2, 8))


def pinn(p, x, y):
    """The heat equation, and values at the same points."""
    points = x.requires_grad_()

    def u(z):
        for at in range(2):
            z = dense(p, f"layer{at}", z, 8).tanh()
        return dense(p, "head", z, 1)[:, 0]

    value = u(points)
    (slopes,) = torch.autograd.grad(value.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(slopes[:, 0].sum(), points, create_graph=True)
    residual = slopes[:, 1] - 0.3 * second[:, 0]
    return residual.square().mean() + F.mse_loss(u(x), y)


network("pinn", pinn, x=[12, 2], y=[12])


def experts(p, x, y):
    scores = dense(p, "router", x, 4, False)
    kept, chosen = scores.topk(2, -1)
    weights = torch.zeros_like(scores).scatter(-1, chosen, kept.softmax(-1))
    hidden = F.silu(torch.einsum("btw,ewh->bteh", x, p("up", 4, 6, 10)))
    given = torch.einsum("bteh,ehw->btew", hidden, p("down", 4, 10, 6))
    return F.mse_loss(torch.einsum("btew,bte->btw", given, weights), y)


network("experts", experts, x=[2, 7, 6], y=[2, 7, 6])

write("zoo", {"networks": NETWORKS})
