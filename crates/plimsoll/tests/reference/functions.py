"""Writes `functions.json`: functions and layers as PyTorch computes them in float64, with their gradients.

    pip install torch numpy
    python functions.py

A case has its inputs, by shape and, of integers, how many different ones there are; the shape of its result; and
checksums of that and of the gradients of Σ weights · result for each float input and each parameter. Numbers are those of
`formula.py`: inputs by the name `<case>/<input>`, weights by `<case>/weights`, parameters by their names.
"""

import math

import torch
import torch.nn.functional as F

from formula import Parameters, checksum, integers, numbers, write

CASES = {}


def case(name, function, **inputs):
    given = {}
    for key, of in inputs.items():
        of = of if isinstance(of, list) else [of]
        if isinstance(of[0], tuple):
            given[key] = integers(f"{name}/{key}", of[0][0], *of[0][1:])
        else:
            given[key] = numbers(f"{name}/{key}", *of).requires_grad_()
    p = Parameters()
    result = function(p, **given)
    CASES[name] = {
        "inputs": {
            key: {"below": of[0][0], "shape": list(of[0][1:])} if isinstance(of[0], tuple) else {"shape": list(of)}
            for key, of in inputs.items()
        },
        "result": checksum("result", result),
        "shape": list(result.shape),
    }
    leaves = {key: value for key, value in given.items() if value.is_floating_point()} | p.made
    if result.requires_grad:
        (numbers(f"{name}/weights", *result.shape) * result).sum().backward()
        CASES[name]["gradients"] = {
            key: checksum(key, leaves[key].grad) for key in sorted(leaves) if leaves[key].grad is not None
        }


def channels_first(x):
    return x.movedim(-1, 1)


def channels_last(x):
    return x.movedim(1, -1)


# Functions of each element.
for name, function in {
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "softplus": F.softplus,
}.items():
    case(name, lambda p, x, f=function: f(x), x=[40])
for name, function in {"relu6": F.relu6, "hard_sigmoid": F.hardsigmoid, "hard_swish": F.hardswish}.items():
    case(name, lambda p, x, f=function: f(5 * x), x=[40])
case("clamp", lambda p, x: x.clamp(-0.5, 1.2), x=[40])

# Reductions, and elements by position.
case("sum_keepdim", lambda p, x: x * x.sum((0, 2), keepdim=True), x=[2, 3, 4])
case("max_keepdim", lambda p, x: x - x.amax(1, keepdim=True), x=[2, 3, 4])
case("variance", lambda p, x: x.var((0, 2), unbiased=False), x=[3, 2, 5])
case("cumsum", lambda p, x: x.cumsum(1), x=[2, 11, 3])
case("one_hot", lambda p, i: F.one_hot(i, 5).double(), i=[(5, 2, 4)])
case("repeat_interleave", lambda p, x: x.repeat_interleave(3, 1), x=[2, 3, 2])
case("index_select", lambda p, x, i: x.index_select(1, i), x=[2, 4, 3], i=[(4, 6)])
case("gather_along", lambda p, x, i: x.gather(1, i), x=[2, 4, 3], i=[(4, 2, 5, 3)])
case("scatter_add_along", lambda p, x, i: torch.zeros(2, 6, 3).scatter_add(1, i, x), x=[2, 4, 3], i=[(6, 2, 4, 3)])
case("top_k", lambda p, x: x.topk(3, -1).values, x=[2, 3, 7])
for mode in "reflect", "replicate", "circular":
    case(
        f"pad_{mode}",
        lambda p, x, mode=mode: channels_last(F.pad(channels_first(x), (3, 2, 1, 2), mode=mode)),
        x=[2, 4, 5, 3],
    )
for name, size, options in [
    ("nearest_up", (8, 15), {"mode": "nearest"}),
    ("nearest", (7, 3), {"mode": "nearest"}),
    ("bilinear_up", (8, 10), {"mode": "bilinear"}),
    ("bilinear", (7, 3), {"mode": "bilinear"}),
    ("bilinear_aligned", (7, 3), {"mode": "bilinear", "align_corners": True}),
]:
    case(
        f"resize_{name}",
        lambda p, x, size=size, options=options: channels_last(F.interpolate(channels_first(x), size, **options)),
        x=[2, 4, 5, 3],
    )
for number, (notation, shapes) in enumerate({
    "ij,jk->ik": ([3, 4], [4, 5]),
    "bqhd,bkhd->bhqk": ([2, 3, 2, 4], [2, 5, 2, 4]),
    "bij,bjk,k->ib": ([2, 3, 4], [2, 4, 5], [5]),
    "abc->cb": ([2, 3, 4],),
    "i,j->ij": ([3], [4]),
    "abx,cay->bc": ([2, 3, 4], [5, 2, 3]),
}.items()):
    operands = {"abc"[at]: shape for at, shape in enumerate(shapes)}
    case(f"einsum_{number}", lambda p, notation=notation, **x: torch.einsum(notation, *x.values()), **operands)

# Norms.
case("rms_norm", lambda p, x: F.rms_norm(x, (6,), p("gamma", 6), 1e-5), x=[2, 3, 6])
case(
    "group_norm",
    lambda p, x: channels_last(F.group_norm(channels_first(x), 2, p("gamma", 6), p("beta", 6), 1e-5)),
    x=[2, 3, 4, 6],
)
case(
    "instance_norm",
    lambda p, x: channels_last(F.instance_norm(channels_first(x), weight=p("gamma", 6), bias=p("beta", 6), eps=1e-5)),
    x=[2, 3, 4, 6],
)


# Convolutions.
def conv1d(p, x, out, window, groups=1, causal=False, **options):
    filter = p("filter", window, x.shape[-1] // groups, out).permute(2, 1, 0)
    x = channels_first(x)
    if causal:
        x = F.pad(x, ((window - 1) * options["dilation"], 0))
    return channels_last(F.conv1d(x, filter, p("bias", out), groups=groups, **options))


case("conv1d", lambda p, x: conv1d(p, x, 6, 3, groups=2, stride=2, padding=1), x=[2, 9, 4])
case("conv1d_causal", lambda p, x: conv1d(p, x, 5, 3, causal=True, dilation=2), x=[2, 9, 4])


def conv_transpose(p, x, out, window, groups=1, **options):
    filter = p("filter", *window, out // groups, x.shape[-1]).permute(3, 2, 0, 1)
    return channels_last(F.conv_transpose2d(channels_first(x), filter, p("bias", out), groups=groups, **options))


case("conv_transpose", lambda p, x: conv_transpose(p, x, 5, (4, 4), stride=2, padding=1), x=[2, 3, 4, 6])
case(
    "conv_transpose_all",
    lambda p, x: conv_transpose(
        p, x, 4, (3, 2), stride=(3, 2), padding=(1, 0), output_padding=(2, 1), dilation=(1, 2), groups=2
    ),
    x=[2, 3, 4, 6],
)


def depthwise(p, x):
    filter = p("filter", 3, 3, 1, 8).permute(3, 2, 0, 1)
    return channels_last(F.conv2d(channels_first(x), filter, p("bias", 8), padding=2, dilation=2, groups=8))


case("depthwise", depthwise, x=[2, 6, 5, 8])


def conv3d(p, x, out, window, groups=1, **options):
    filter = p("filter", *window, x.shape[-1] // groups, out).permute(4, 3, 0, 1, 2)
    return channels_last(F.conv3d(channels_first(x), filter, p("bias", out), groups=groups, **options))


case("conv3d", lambda p, x: conv3d(p, x, 5, (3, 2, 3), padding=1), x=[2, 4, 5, 3, 2])
case(
    "conv3d_all",
    lambda p, x: conv3d(p, x, 4, (2, 3, 2), stride=(2, 1, 2), padding=(1, 2, 0), dilation=(2, 1, 1), groups=2),
    x=[2, 5, 4, 5, 6],
)
case("max_pool3d", lambda p, x: channels_last(F.max_pool3d(channels_first(x), (2, 3, 2))), x=[2, 5, 6, 5, 3])


# Attention, [batch, tokens, heads, width].
def attend(q, k, v, **options):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)


def lengths_mask(lengths, tokens):
    return torch.arange(tokens)[None, :] < lengths[:, None]


SHAPES = {"q": [2, 5, 4, 6], "k": [2, 7, 2, 6], "v": [2, 7, 2, 6]}
case("attention_grouped", lambda p, q, k, v: attend(q, k, v, enable_gqa=True), **SHAPES)
case("attention_scaled", lambda p, q, k, v: attend(q, k, v, enable_gqa=True, scale=0.3), **SHAPES)
case(
    "attention_masked",
    lambda p, q, k, v, n: attend(q, k, v, enable_gqa=True, attn_mask=lengths_mask(n + 1, 7)[:, None, None, :]),
    n=[(7, 2)],
    **SHAPES,
)
case(
    "attention_biased",
    lambda p, q, k, v, b: attend(q, k, v, enable_gqa=True, attn_mask=b),
    b=[1, 4, 5, 7],
    **SHAPES,
)
case(
    "attention_biased_causal",
    lambda p, q, k, v, b: attend(
        q, k, v, enable_gqa=True, attn_mask=b.masked_fill(torch.ones(5, 7).triu(3).bool(), -math.inf)
    ),
    b=[4, 5, 7],
    **SHAPES,
)


def windowed(p, q, k, v):
    """Three positions back at most, with scores bent to stay within 0.8."""
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2)))
    scores = 0.8 * torch.tanh(q @ k.transpose(2, 3) / math.sqrt(6) / 0.8)
    behind = 2 + torch.arange(5)[:, None] - torch.arange(7)[None, :]
    scores = scores.masked_fill((behind < 0) | (behind >= 3), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


case("attention_windowed", windowed, **SHAPES)


def rotary(x, base=10000.0):
    tokens, half = x.shape[1], x.shape[3] // 2
    angle = torch.arange(tokens)[:, None, None] * base ** -(torch.arange(half) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


case("rotary", lambda p, x: rotary(x), x=[2, 9, 2, 8])


def dense(p, scope, x, units, bias=True):
    y = x @ p(f"{scope}/weight", x.shape[-1], units)
    return y + p(f"{scope}/bias", units) if bias else y


def heads(x, count):
    return x.unflatten(-1, (count, -1))


def multi_head(p, x, memory):
    """Cross-attention of 4 heads over 2 of keys and values, without biases."""
    q = heads(dense(p, "q", x, 8, bias=False), 4)
    k, v = (heads(part, 2) for part in dense(p, "kv", memory, 8, bias=False).chunk(2, -1))
    return dense(p, "out", attend(q, k, v, enable_gqa=True).flatten(2), 8, bias=False)


case("cross_attention", multi_head, x=[2, 5, 8], memory=[2, 7, 6])


def self_attention(p, x):
    """Causal, of 4 heads over 2 of keys and values, with rotary positions."""
    q, k, v = dense(p, "qkv", x, 16).split([8, 4, 4], -1)
    y = attend(rotary(heads(q, 4)), rotary(heads(k, 2)), heads(v, 2), enable_gqa=True, is_causal=True)
    return dense(p, "out", y.flatten(2), 8)


case("self_attention", self_attention, x=[2, 5, 8])


def relative_bias(p, x, causal):
    """T5's, of 8 buckets for distances up to 20; `x` only says how many there are of both."""
    queries, keys = x.shape
    ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    each, bucket = (8, 0) if causal else (4, (ahead > 0) * 4)
    distance = -ahead.clamp(max=0) if causal else ahead.abs()
    single = each // 2
    far = single + (torch.log(distance.clamp(min=1) / single) / math.log(20 / single) * (each - single)).long()
    bucket = bucket + torch.where(distance < single, distance, far.clamp(max=each - 1))
    return F.embedding(bucket, p("table", 8, 3)).permute(2, 0, 1)[None] + 0 * x


case("relative_bias", lambda p, x: relative_bias(p, x, False), x=[24, 27])
case("relative_bias_causal", lambda p, x: relative_bias(p, x, True), x=[24, 27])


def swiglu(p, x):
    return dense(p, "down", F.silu(dense(p, "gate", x, 7, False)) * dense(p, "up", x, 7, False), 4, False)


case("swiglu", swiglu, x=[3, 4])


def squeeze_excite(p, x):
    squeezed = F.silu(dense(p, "squeeze", x.mean((1, 2)), 2))
    return x * F.hardsigmoid(dense(p, "excite", squeezed, 6))[:, None, None, :]


case("squeeze_excite", squeeze_excite, x=[2, 3, 4, 6])

# Losses.
case(
    "smoothed_cross_entropy",
    # Label 6 of 7 stands for nothing.
    lambda p, x, i: F.cross_entropy(x, torch.where(i == 6, -100, i), label_smoothing=0.1),
    x=[9, 6],
    i=[(7, 9)],
)
case("l1", lambda p, x, y: F.l1_loss(x, y), x=[3, 5], y=[3, 5])
case("huber", lambda p, x, y: F.huber_loss(x, y, delta=0.7), x=[3, 5], y=[3, 5])
case("smooth_l1", lambda p, x, y: F.smooth_l1_loss(x, y, beta=0.7), x=[3, 5], y=[3, 5])
case(
    "kl_div",
    lambda p, x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    x=[3, 5],
    y=[3, 5],
)
case(
    "cosine_embedding",
    lambda p, a, b, i: F.cosine_embedding_loss(a, b, 2 * i - 1, margin=0.2),
    a=[8, 3],
    b=[8, 3],
    i=[(2, 8)],
)
case("triplet", lambda p, a, b, c: F.triplet_margin_loss(a, b, c, margin=0.8), a=[6, 4], b=[6, 4], c=[6, 4])

case(
    "ctc",
    # Labels are above 0; the first two samples are as long as can be, and shorter.
    lambda p, x, i, n, m: F.ctc_loss(x.log_softmax(-1).transpose(0, 1), i + 1, n + 6, m + 1, blank=0),
    x=[4, 9, 5],
    i=[(4, 4, 3)],
    n=[(4, 4)],
    m=[(3, 4)],
)

write("functions", {"cases": CASES})
