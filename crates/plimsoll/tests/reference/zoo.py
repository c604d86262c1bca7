"""Writes `zoo.json`: small versions of the networks in `plimsoll::models`, as PyTorch trains them in float64.

    pip install torch numpy
    python zoo.py

A network is a function of parameters `p(name, *shape)` and of inputs to a loss: see `networks.py`. It is trained for 20
steps of SGD with a momentum of 0.9 on one batch. The file has the inputs, by shape and, of integers, how many different ones there are; the
rate; the loss of every step before its update; and checksums of the first step's gradients. All numbers are those of
`formula.py`: inputs by the name `<network>/<input>`, parameters by Plimsoll's names.
"""

import torch
import torch.nn.functional as F

from formula import Parameters, checksum, integers, numbers, write
from networks import *  # noqa: F403

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


IMAGES, LABELS = [4, 32, 32, 3], (5, 4)
# Enough images of enough pixels for the statistics of the last stage, and a low rate: norms by few numbers, and activations
# that rounding takes to the other side of zero, cost float32 its digits within a few steps, in PyTorch as well.
MANY = {"x": [8, 48, 48, 3], "y": (5, 8), "rate": 0.0001}
network("resnet18", classes(lambda p, x: resnet(p, x, [2, 2, 2, 2], 4)), **MANY)
network("resnet50", classes(lambda p, x: resnet(p, x, [1, 1, 1, 1], 6, True)), **MANY)
# Its few channels come to such places earlier: here at 0.0001 in step 7, and PyTorch's float32 on some numbers of threads too.
network("resnext", classes(lambda p, x: resnet(p, x, [1, 1, 1, 1], 4, True, 4, 2)), **MANY | {"rate": 0.00003})

VGG = [(1, 4), (2, 8)]
network("vgg", classes(lambda p, x: vgg(p, x, VGG, 12, False)), x=[4, 16, 16, 3], y=LABELS)
network("vgg_norm", classes(lambda p, x: vgg(p, x, VGG, 12, True)), x=[4, 16, 16, 3], y=LABELS)
network("densenet", classes(lambda p, x: densenet(p, x, [2, 2], 4, 8)), x=IMAGES, y=LABELS)
MODULE = (4, (3, 6), (2, 3), 3)
network("inception", classes(lambda p, x: inception(p, x, (4, 4, 8), [[MODULE, MODULE], [MODULE]])), x=IMAGES, y=LABELS)

SMALL = {"x": [4, 16, 16, 3], "y": LABELS}
V2 = [(8, 6, 3, 1, 0, F.relu6), (24, 8, 3, 2, 0, F.relu6), (32, 8, 3, 1, 0, F.relu6)]
V3 = [(8, 8, 3, 1, 0, F.relu), (20, 12, 5, 2, 4, F.relu), (32, 12, 5, 1, 8, F.hardswish)]
B0 = [(8, 6, 3, 1, 2, F.silu), (24, 8, 5, 2, 2, F.silu), (32, 8, 3, 1, 2, F.silu)]
V3_GATES, B0_GATES = (F.hardswish, F.relu, F.hardsigmoid), (F.silu, F.silu, torch.sigmoid)
network("mobilenet_v2", classes(lambda p, x: mobilenet(p, x, 8, V2, 16, None, F.relu6)), **SMALL)
network("mobilenet_v3", classes(lambda p, x: mobilenet(p, x, 8, V3, 16, 24, *V3_GATES)), **SMALL)
network("efficientnet", classes(lambda p, x: mobilenet(p, x, 8, B0, 16, None, *B0_GATES)), **SMALL)

network("convnext", classes(lambda p, x: convnext(p, x, [1, 2], [6, 8])), x=[4, 32, 32, 3], y=LABELS)
for upsampling in "nearest", "bilinear", "transposed":
    network(f"unet_{upsampling}", classes(lambda p, x: unet(p, x, upsampling, [4, 6])), x=[2, 8, 12, 3], y=(3, 2, 8, 12))
network("deeplab", classes(lambda p, x: deeplab(p, x, 6, 2, [2, 3])), x=[4, 16, 20, 3], y=(3, 4, 16, 20))
network("unet3d", classes(lambda p, x: unet3d(p, x, [3])), x=[2, 4, 6, 4, 2], y=(3, 2, 4, 6, 4))
network("dcgan_generator", squares(lambda p, z: generator(p, z, 4, 2)), z=[4, 6], y=[4, 16, 16, 3])
network(
    "dcgan_discriminator",
    lambda p, x, y: F.binary_cross_entropy_with_logits(discriminator(p, x), y.double()),
    x=[4, 16, 16, 3],
    y=(2, 4),
    rate=0.005,
)
network("autoencoder", lambda p, x: autoencoder(p, x, [4, 8], 5), x=[4, 8, 12, 3])
network("vit", classes(lambda p, x: vit(p, x, 4, 2, 8, 2)), x=[4, 12, 8, 3], y=LABELS)
network("mixer", classes(lambda p, x: mixer(p, x, 4, 2, 8, 5, 16)), x=[4, 12, 8, 3], y=LABELS)
network("diffusion", squares(lambda p, x, t: diffusion(p, x, t, [4, 8], 2, 2)), x=[2, 8, 8, 3], t=(1000, 2), y=[2, 8, 8, 3])

V = 11
TEXT = (V, 3, 9)
network("llama", classes(lambda p, x: llama(p, x, 2, 16, 4, 2, 20, V)), x=TEXT, y=TEXT)
network("bert", classes(lambda p, x, n: bert(p, x, n, 2, 8, 2, 16, 12, V)), x=TEXT, n=(9, 3), y=TEXT)
T5 = {"width": 8, "vocab": V, "layers": 2, "heads": 2, "hidden": 16, "buckets": 8, "farthest": 6}
network("t5", classes(lambda p, x, source: t5(p, source, x, **T5)), source=(V, 3, 13), x=TEXT, y=TEXT)
network("lstm", classes(lambda p, x: language(p, x, 4, 2, 8, V)), x=TEXT, y=TEXT, rate=0.1)
network("gru", classes(lambda p, x: language(p, x, 3, 2, 8, V)), x=TEXT, y=TEXT, rate=0.1)
network("seq2seq", classes(lambda p, x, source, n: seq2seq(p, x, source, n, 8, 7, V)), source=(7, 3, 6), n=(6, 3), x=TEXT, y=TEXT, rate=0.1)
network("wavenet", classes(lambda p, x: wavenet(p, x, V, 6, 3, 2)), x=(V, 2, 20), y=(V, 2, 20))


def likes(p, x, i, y):
    return F.binary_cross_entropy_with_logits(recommender(p, x, i, [9, 7, 20], 6, [8], [10]), y.double())


network("recommender", likes, x=[8, 4], i=(7, 8, 3), y=(2, 8))
network("pinn", lambda p, x, y: pinn(p, x, y, 2, 8), x=[12, 2], y=[12])
network("experts", squares(lambda p, x: experts(p, x, 4, 2, 10)), x=[2, 7, 6], y=[2, 7, 6])

write("zoo", {"networks": NETWORKS})
