"""The networks of `plimsoll::models` in PyTorch, of any size.

A network is a function of parameters `p(name, *shape)`, which has them by Plimsoll's names, and of inputs. `zoo.py` trains
small ones in float64 to compare with, and `benches/zoo/torch_cpu.py` those that are timed. Layouts are Plimsoll's: images
NHWC, filters HWIO (of transposed convolutions, the O first), dense weights [in, out]. What PyTorch computes with are views of
them, so that whoever stores parameters and images in the layouts that it likes best has nothing copied.
"""

import math

import torch
import torch.nn.functional as F

# Layers.


def in_scope(p, scope):
    return lambda name, *shape: p(f"{scope}/{name}", *shape)


def dense(p, scope, x, units, bias=True):
    bias = p(f"{scope}/bias", units) if bias else None
    return F.linear(x, p(f"{scope}/weight", x.shape[-1], units).t(), bias)


def of_conv(filter):
    """A filter as PyTorch's convolutions take it; that of float64 takes it in no other layout."""
    filter = filter.movedim((-1, -2), (0, 1))
    return filter.contiguous() if filter.dtype == torch.float64 else filter


def conv(p, scope, x, filters, window, bias=True, groups=1, padding=None, **options):
    """A convolution, centred unless its padding is given."""
    filter = of_conv(p(f"{scope}/filter", window, window, x.shape[-1] // groups, filters))
    padding = window // 2 * options.get("dilation", 1) if padding is None else padding
    bias = p(f"{scope}/bias", filters) if bias else None
    return F.conv2d(x.movedim(-1, 1), filter, bias, groups=groups, padding=padding, **options).movedim(1, -1)


def conv_transpose(p, scope, x, filters, window, stride=1, padding=0, bias=True):
    filter = of_conv(p(f"{scope}/filter", window, window, filters, x.shape[-1]))
    bias = p(f"{scope}/bias", filters) if bias else None
    return F.conv_transpose2d(x.movedim(-1, 1), filter, bias, stride, padding).movedim(1, -1)


def conv1d(p, scope, x, filters, window, dilation=1):
    filter = of_conv(p(f"{scope}/filter", window, x.shape[-1], filters))
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
    options["enable_gqa"] = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)


def self_attention(p, scope, x, heads, key_value_heads=None, bias=True, turn=None, **options):
    width, few = x.shape[-1], x.shape[-1] // heads * (key_value_heads or heads)
    q, k, v = dense(p, f"{scope}/qkv", x, width + 2 * few, bias).split([width, few, few], -1)
    q, k, v = q.unflatten(-1, (heads, -1)), k.unflatten(-1, (heads * few // width, -1)), v.unflatten(-1, (heads * few // width, -1))
    if turn:
        q, k = turn(q), turn(k)
    return dense(p, f"{scope}/out", attend(q, k, v, **options).flatten(2), width, bias)


def block(p, scope, x, heads, **options):
    """Plimsoll's `TransformerBlock`."""
    x = x + self_attention(p, f"{scope}/attention", layer_norm(p, f"{scope}/ln1", x), heads, **options)
    hidden = F.gelu(dense(p, f"{scope}/mlp/up", layer_norm(p, f"{scope}/ln2", x), 4 * x.shape[-1]))
    return x + dense(p, f"{scope}/mlp/down", hidden, x.shape[-1])


def embed(p, scope, tokens, vocabulary, width):
    return F.embedding(tokens, p(f"{scope}/table", vocabulary, width))


def recurrent(p, scope, x, hidden, gates, first=None):
    """An LSTM (4 gates, one bias) or a GRU (3 gates, two biases)."""
    weights = [p(f"{scope}/input_weight", x.shape[-1], gates * hidden).t()]
    weights.append(p(f"{scope}/hidden_weight", hidden, gates * hidden).t())
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


def squares(function):
    """The mean of the squares of how far a network's results are from `y`."""
    return lambda p, y, **inputs: F.mse_loss(function(p, **inputs), y)


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


def vgg(p, x, stages, hidden, batch_norm, classes=5):
    for stage, (count, width) in enumerate(stages):
        for at in range(count):
            scope = f"stage{stage}/conv{at}"
            x = conv_norm(p, scope, f"stage{stage}/norm{at}", x, width, 3) if batch_norm else conv(p, scope, x, width, 3)
            x = x.relu()
        x = max_pool(x, 2)
    x = x.flatten(1)
    for scope in "hidden0", "hidden1":
        x = dense(p, scope, x, hidden).relu()
    return dense(p, "head", x, classes)


def densenet(p, x, blocks, growth, stem, classes=5):
    x = max_pool(conv_norm(p, "stem/conv", "stem/norm", x, stem, 7, stride=2).relu(), 3, 2, 1)
    for at, layers in enumerate(blocks):
        if at:
            y = batch_norm(p, f"transition{at - 1}/norm", x).relu()
            x = mean_pool(conv(p, f"transition{at - 1}/conv", y, x.shape[-1] // 2, 1, bias=False), 2)
        for layer in range(layers):
            q = in_scope(p, f"block{at}/layer{layer}")
            y = conv_norm(q, "conv1", "norm2", batch_norm(q, "norm1", x).relu(), 4 * growth, 1).relu()
            x = torch.cat([x, conv(q, "conv2", y, growth, 3, bias=False)], -1)
    return dense(p, "head", batch_norm(p, "norm", x).relu().mean((1, 2)), classes)


def inception(p, x, stem, stages, classes=5):
    """A module of a stage is the widths of its branches: one, three (two of them), five (two), pool."""
    first, second, third = stem
    x = conv_norm(p, "stem/conv1", "stem/norm1", x, first, 7, stride=2).relu()
    x = conv_norm(p, "stem/conv2", "stem/norm2", max_pool(x, 3, 2, 1), second, 1).relu()
    x = conv_norm(p, "stem/conv3", "stem/norm3", x, third, 3).relu()
    for stage, modules in enumerate(stages):
        x = max_pool(x, 3, 2, 1)
        for at, (one, three, five, pool) in enumerate(modules):
            q = in_scope(p, f"stage{stage}/module{at}")
            branches = [conv_norm(q, "one/conv", "one/norm", x, one, 1)]
            for scope, (narrow, width), window in ("three", three, 3), ("five", five, 5):
                y = conv_norm(q, f"{scope}/reduce", f"{scope}/reduce_norm", x, narrow, 1).relu()
                branches.append(conv_norm(q, f"{scope}/conv", f"{scope}/norm", y, width, window))
            branches.append(conv_norm(q, "pool/conv", "pool/norm", max_pool(x, 3, 1, 1), pool, 1))
            x = torch.cat([branch.relu() for branch in branches], -1)
    return dense(p, "head", x.mean((1, 2)), classes)


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


def mobilenet(p, x, stem, blocks, last, hidden, activation, within=None, gate=None, classes=5):
    x = activation(conv_norm(p, "stem/conv", "stem/norm", x, stem, 3, stride=2))
    for at, (inside, outside, window, stride, squeeze, inner) in enumerate(blocks):
        q = in_scope(p, f"block{at}")
        x = inverted_residual(q, x, inside, outside, window, stride, squeeze, within, gate, inner)
    x = activation(conv_norm(p, "last/conv", "last/norm", x, last, 1)).mean((1, 2))
    if hidden:
        x = activation(dense(p, "hidden", x, hidden))
    return dense(p, "head", x, classes)


def convnext(p, x, depths, widths, classes=5):
    for stage, (depth, width) in enumerate(zip(depths, widths)):
        if stage == 0:
            x = layer_norm(p, "stem/norm", conv(p, "stem/conv", x, width, 4, stride=4, padding=0), 1e-6)
        else:
            q = in_scope(p, f"downsample{stage}")
            x = conv(q, "conv", layer_norm(q, "norm", x, 1e-6), width, 2, stride=2, padding=0)
        for at in range(depth):
            q = in_scope(p, f"stage{stage}/block{at}")
            y = layer_norm(q, "norm", conv(q, "depthwise", x, width, 7, groups=width), 1e-6)
            x = x + dense(q, "down", F.gelu(dense(q, "up", y, 4 * width)), width) * q("scale", width)
    return dense(p, "head", layer_norm(p, "norm", x.mean((1, 2)), 1e-6), classes)


def two_convolutions(p, x, width):
    x = conv_norm(p, "conv1", "norm1", x, width, 3).relu()
    return conv_norm(p, "conv2", "norm2", x, width, 3).relu()


def unet(p, x, upsampling, widths, classes=3):
    skips = []
    for level, width in enumerate(widths):
        skips.append(two_convolutions(in_scope(p, f"down{level}"), x, width))
        x = max_pool(skips[-1], 2)
    x = two_convolutions(in_scope(p, "bottom"), x, 2 * widths[-1])
    for level in reversed(range(len(widths))):
        q, size = in_scope(p, f"up{level}"), [2 * extent for extent in x.shape[1:3]]
        if upsampling == "nearest":
            raised = F.pad(resize(x, size, "nearest"), (0, 0, 0, 1, 0, 1))
            raised = conv(q, "up", raised, widths[level], 2, padding=0)
        elif upsampling == "bilinear":
            raised = conv(q, "up", resize(x, size, "bilinear"), widths[level], 1)
        else:
            raised = conv_transpose(q, "up", x, widths[level], 2, 2)
        x = two_convolutions(q, torch.cat([skips[level], raised], -1), widths[level])
    return conv(p, "head", x, classes, 1)


def deeplab(p, x, width, blocks, rates, classes=3):
    size = x.shape[1:3]
    for scope in "stem0", "stem1":
        x = conv_norm(p, f"{scope}/conv", f"{scope}/norm", x, width, 3, stride=2).relu()
    for at in range(blocks):
        q, dilation = in_scope(p, f"block{at}"), 1 << at
        y = conv_norm(q, "conv1", "norm1", x, width, 3, dilation=dilation).relu()
        x = (x + conv_norm(q, "conv2", "norm2", y, width, 3, dilation=dilation)).relu()
    q = in_scope(p, "pyramid")
    branches = [conv_norm(q, "one/conv", "one/norm", x, width, 1)]
    for at, rate in enumerate(rates):
        branches.append(conv_norm(q, f"rate{at}/conv", f"rate{at}/norm", x, width, 3, dilation=rate))
    image = conv_norm(q, "image/conv", "image/norm", x.mean((1, 2), keepdim=True), width, 1)
    branches.append(image.expand_as(x))
    x = conv_norm(q, "project/conv", "project/norm", torch.cat(branches, -1).relu(), width, 1).relu()
    return resize(conv(p, "head", x, classes, 1), size, "bilinear")


def unet3d(p, x, widths, classes=3):
    def twice(p, x, width):
        for at in "12":
            filter = of_conv(p(f"conv{at}/filter", 3, 3, 3, x.shape[-1], width))
            y = F.conv3d(x.movedim(-1, 1), filter, padding=1).movedim(1, -1)
            x = batch_norm(p, f"norm{at}", y).relu()
        return x

    skips = []
    for level, width in enumerate(widths):
        skips.append(twice(in_scope(p, f"down{level}"), x, width))
        x = F.max_pool3d(skips[-1].movedim(-1, 1), 2).movedim(1, -1)
    x = twice(in_scope(p, "bottom"), x, 2 * widths[-1])
    for level in reversed(range(len(widths))):
        raised = F.interpolate(x.movedim(-1, 1), scale_factor=2).movedim(1, -1)
        x = twice(in_scope(p, f"up{level}"), torch.cat([skips[level], raised], -1), widths[level])
    return F.linear(x, p("head/filter", 1, 1, 1, widths[0], classes)[0, 0, 0].t(), p("head/bias", classes))


def generator(p, z, width, doublings, channels=3):
    x = z[:, None, None, :]
    for at in range(doublings):
        x = conv_transpose(p, f"up{at}/conv", x, width << (doublings - 1 - at), 4, *((1, 0) if at == 0 else (2, 1)), bias=False)
        x = batch_norm(p, f"up{at}/norm", x).relu()
    return conv_transpose(p, "head", x, channels, 4, 2, 1, bias=False).tanh()


def discriminator(p, x):
    x = F.leaky_relu(conv(p, "down0/conv", x, 4, 4, bias=False, stride=2, padding=1), 0.2)
    x = F.leaky_relu(conv_norm(p, "down1/conv", "down1/norm", x, 8, 4, stride=2, padding=1), 0.2)
    return conv(p, "head", x, 1, 4, bias=False, padding=0).reshape(-1)


def autoencoder(p, x, widths, latent):
    given = x
    for at, width in enumerate(widths):
        x = conv(p, f"down{at}", x, width, 3, stride=2).relu()
    shape = x.shape
    x = dense(p, "spread", dense(p, "latent", x.flatten(1), latent), math.prod(shape[1:])).relu().reshape(shape)
    for at, width in enumerate([*widths[-2::-1], given.shape[-1]]):
        x = conv_transpose(p, f"up{at}", x.relu() if at else x, width, 4, 2, 1)
    return F.mse_loss(x, given)


def patches(p, x, patch, width):
    return conv(p, "patches", x, width, patch, stride=patch, padding=0).flatten(1, 2)


def vit(p, x, patch, layers, width, heads, classes=5):
    x = patches(p, x, patch, width)
    x = torch.cat([p("class", 1, width).expand(x.shape[0], 1, width), x], 1) + p("positions", x.shape[1] + 1, width)
    for at in range(layers):
        x = block(p, f"block{at}", x, heads)
    return dense(p, "head", layer_norm(p, "ln", x[:, 0]), classes)


def mixer(p, x, patch, layers, width, token_hidden, channel_hidden, classes=5):
    x = patches(p, x, patch, width)
    for at in range(layers):
        q = in_scope(p, f"block{at}")
        y = layer_norm(q, "ln1", x).transpose(1, 2)
        y = F.gelu(dense(q, "tokens/up", y, token_hidden))
        x = x + dense(q, "tokens/down", y, x.shape[1]).transpose(1, 2)
        y = layer_norm(q, "ln2", x)
        x = x + dense(q, "channels/down", F.gelu(dense(q, "channels/up", y, channel_hidden)), width)
    return dense(p, "head", layer_norm(p, "ln", x).mean(1), classes)


def diffusion(p, x, t, widths, groups, heads):
    half, wide = widths[0] // 2, 4 * widths[0]
    rate = 10000 ** -(torch.arange(half) / half)
    angle = t[:, None] * rate
    waves = torch.cat([angle.sin(), angle.cos()], 1)
    time = dense(p, "time/out", F.silu(dense(p, "time/hidden", waves, wide)), wide)

    def residual(scope, x, width):
        q = in_scope(p, scope)
        h = conv(q, "conv1", F.silu(group_norm(q, "norm1", x, groups)), width, 3)
        h = h + dense(q, "time", F.silu(time), width)[:, None, None, :]
        h = conv(q, "conv2", F.silu(group_norm(q, "norm2", h, groups)), width, 3)
        return (x if x.shape[-1] == width else conv(q, "skip", x, width, 1)) + h

    h, skips = conv(p, "stem", x, widths[0], 3), []
    for level, width in enumerate(widths):
        skips.append(residual(f"down{level}/block", h, width))
        last = level + 1 == len(widths)
        h = skips[-1] if last else conv(p, f"down{level}/shrink", skips[-1], width, 3, stride=2)
    h = residual("bottom/block0", h, widths[-1])
    tokens = group_norm(p, "bottom/norm", h, groups).flatten(1, 2)
    h = h + self_attention(p, "bottom/attention", tokens, heads).reshape(h.shape)
    h = residual("bottom/block1", h, widths[-1])
    for level in reversed(range(len(widths))):
        if h.shape[1] != skips[level].shape[1]:
            h = conv(p, f"up{level}/grow", resize(h, skips[level].shape[1:3], "nearest"), h.shape[-1], 3)
        h = residual(f"up{level}/block", torch.cat([h, skips[level]], -1), widths[level])
    return conv(p, "head", F.silu(group_norm(p, "norm", h, groups)), x.shape[-1], 3)


# Networks for text.


def gpt(p, x, layers, width, heads, context, vocab):
    tokens = x.shape[1]
    x = embed(p, "tokens", x, vocab, width) + p("positions/table", context, width)[:tokens]
    for at in range(layers):
        x = block(p, f"block{at}", x, heads, is_causal=True)
    return F.linear(layer_norm(p, "ln", x), p("tokens/table", vocab, width))


def llama(p, x, layers, width, heads, key_value_heads, hidden, vocab):
    x = embed(p, "tokens", x, vocab, width)
    for at in range(layers):
        q = in_scope(p, f"block{at}")
        y = rms_norm(q, "norm1", x)
        x = x + self_attention(q, "attention", y, heads, key_value_heads, bias=False, turn=rotary, is_causal=True)
        y = rms_norm(q, "norm2", x)
        gated = F.silu(dense(q, "mlp/gate", y, hidden, False)) * dense(q, "mlp/up", y, hidden, False)
        x = x + dense(q, "mlp/down", gated, width, False)
    return dense(p, "head", rms_norm(p, "norm", x), vocab, False)


def bert(p, x, n, layers, width, heads, hidden, context, vocab):
    """Sequences have one token more than `n`; the others are padding."""
    tokens = x.shape[1]
    mask = (torch.arange(tokens)[None, :] <= n[:, None])[:, None, None, :]
    table = p("tokens/table", vocab, width)
    x = layer_norm(p, "ln", F.embedding(x, table) + p("positions/table", context, width)[:tokens])
    for at in range(layers):
        q = in_scope(p, f"block{at}")
        x = layer_norm(q, "ln1", x + self_attention(q, "attention", x, heads, attn_mask=mask))
        x = layer_norm(q, "ln2", x + dense(q, "down", F.gelu(dense(q, "up", x, hidden)), width))
    x = layer_norm(p, "head/ln", F.gelu(dense(p, "head/dense", x, width)))
    return F.linear(x, table, p("head/bias", vocab))


def relative_bias(p, tokens, heads, causal, buckets, farthest):
    ahead = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
    each, bucket = (buckets, 0) if causal else (buckets // 2, (ahead > 0) * (buckets // 2))
    distance = -ahead.clamp(max=0) if causal else ahead.abs()
    single = each // 2
    far = single + (torch.log(distance.clamp(min=1) / single) / math.log(farthest / single) * (each - single)).long()
    bucket = bucket + torch.where(distance < single, distance, far.clamp(max=each - 1))
    return F.embedding(bucket, p("table", buckets, heads)).permute(2, 0, 1)[None]


def t5_stack(p, x, memory, layers, heads, hidden, buckets, farthest):
    tokens, width = x.shape[1], x.shape[-1]
    bias = relative_bias(in_scope(p, "bias"), tokens, heads, memory is not None, buckets, farthest)
    if memory is not None:
        bias = bias.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -math.inf)
    for at in range(layers):
        q = in_scope(p, f"block{at}")
        y = rms_norm(q, "norm1", x)
        x = x + self_attention(q, "attention", y, heads, bias=False, attn_mask=bias, scale=1.0)
        if memory is not None:
            y = dense(q, "cross/q", rms_norm(q, "cross_norm", x), width, False)
            k, v = dense(q, "cross/kv", memory, 2 * width, False).chunk(2, -1)
            found = attend(*(z.unflatten(-1, (heads, -1)) for z in (y, k, v)), scale=1.0)
            x = x + dense(q, "cross/out", found.flatten(2), width, False)
        x = x + dense(q, "down", dense(q, "up", rms_norm(q, "norm2", x), hidden, False).relu(), width, False)
    return rms_norm(p, "norm", x)


def t5(p, source, x, width, vocab, **sizes):
    table = p("tokens/table", vocab, width)
    memory = t5_stack(in_scope(p, "encoder"), F.embedding(source, table), None, **sizes)
    return F.linear(t5_stack(in_scope(p, "decoder"), F.embedding(x, table), memory, **sizes), table) / math.sqrt(width)


def language(p, x, gates, layers, width, vocab):
    x = embed(p, "tokens", x, vocab, width)
    for at in range(layers):
        x = recurrent(p, f"layer{at}", x, width, gates)
    return dense(p, "head", x, vocab)


def seq2seq(p, x, source, n, width, source_vocab, target_vocab):
    lengths = n + 1
    states = recurrent(p, "encoder", embed(p, "source", source, source_vocab, width), width, 3)
    there = torch.arange(source.shape[1])[None, :] < lengths[:, None]
    first = (states * there[:, :, None]).sum(1) / lengths[:, None]
    decoded = recurrent(p, "decoder", embed(p, "target", x, target_vocab, width), width, 3, first)
    head = lambda z: z[:, :, None, :]  # noqa: E731
    found = attend(head(decoded), head(states), head(states), attn_mask=there[:, None, None, :], scale=1.0)[:, :, 0]
    return dense(p, "head", dense(p, "mix", torch.cat([decoded, found], -1), width).tanh(), target_vocab)


def wavenet(p, x, levels, width, layers, stacks):
    x, seen = embed(p, "levels", x, levels, width), 0
    for at in range(layers * stacks):
        q, dilation = in_scope(p, f"layer{at}"), 1 << at % layers
        gated = conv1d(q, "filter", x, width, 2, dilation).tanh() * conv1d(q, "gate", x, width, 2, dilation).sigmoid()
        seen = seen + conv1d(q, "skip", gated, width, 1)
        x = x + conv1d(q, "residual", gated, width, 1) if at + 1 < layers * stacks else None
    return conv1d(p, "head", conv1d(p, "hidden", seen.relu(), width, 1).relu(), levels, 1)


# Others.


def recommender(p, x, i, tables, width, bottom, top):
    for at, units in enumerate([*bottom, width]):
        x = dense(p, f"bottom{at}", x, units).relu()
    rows = [x] + [embed(p, f"table{at}", i[:, at], rows, width) for at, rows in enumerate(tables)]
    rows = torch.stack(rows, 1)
    products = rows @ rows.transpose(1, 2)
    x = torch.cat([x] + [products[:, row, :row] for row in range(1, len(tables) + 1)], 1)
    for at, units in enumerate(top):
        x = dense(p, f"top{at}", x, units).relu()
    return dense(p, "head", x, 1)[:, 0]


def pinn(p, x, y, layers, width):
    """The heat equation, and values at the same points."""
    points = x.requires_grad_()

    def u(z):
        for at in range(layers):
            z = dense(p, f"layer{at}", z, width).tanh()
        return dense(p, "head", z, 1)[:, 0]

    value = u(points)
    (slopes,) = torch.autograd.grad(value.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(slopes[:, 0].sum(), points, create_graph=True)
    residual = slopes[:, 1] - 0.3 * second[:, 0]
    return residual.square().mean() + F.mse_loss(u(x), y)


def experts(p, x, experts, chosen, hidden):
    width = x.shape[-1]
    scores = dense(p, "router", x, experts, False)
    kept, which = scores.topk(chosen, -1)
    weights = torch.zeros_like(scores).scatter(-1, which, kept.softmax(-1))
    inner = F.silu(torch.einsum("btw,ewh->bteh", x, p("up", experts, width, hidden)))
    given = torch.einsum("bteh,ehw->btew", inner, p("down", experts, hidden, width))
    return torch.einsum("btew,bte->btw", given, weights)
