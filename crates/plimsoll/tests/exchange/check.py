"""Reads what Plimsoll writes for other programs, and writes what it is to read: `.ci/python` runs it.

    exchange write DIR; check.py written DIR; exchange load DIR; check.py loaded DIR

`written` reads all weights with Python's safetensors, runs all ONNX files by onnxruntime, and computes GPT-2 and ResNet-50
here, in NumPy, from the weights under the names and in the layouts of Hugging Face and torchvision; all must be Plimsoll's
logits. It leaves weights of its own for Plimsoll to load; `loaded` compares what that made of them.

`with_torch.py` does the same with PyTorch's modules in place of those here.
"""

import math
import pathlib
import sys

import numpy as np

TOLERANCE = 1e-4


def read(path):
    from safetensors.numpy import load_file

    return load_file(path)


def compare(what, ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, f"{what}: {ours.shape} and {theirs.shape}"
    assert np.isfinite(theirs).all(), f"{what}: not finite"
    difference = np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max())
    print(f"{what:<44} differs by {difference:.1e}")
    assert difference <= TOLERANCE, f"{what}: differs by {difference}"


# GPT-2 and ResNet-50, as their weights are defined.


def layer_norm(x, w, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def conv1d(x, w, name):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gpt2(weights, tokens, heads=4):
    w = {name.removeprefix("transformer."): weight.astype(np.float64) for name, weight in weights.items()}
    batch, length = tokens.shape
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    block = 0
    while f"h.{block}.ln_1.weight" in w:
        at = f"h.{block}"
        joint = conv1d(layer_norm(x, w, f"{at}.ln_1"), w, f"{at}.attn.c_attn")
        q, k, v = (t.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for t in np.split(joint, 3, axis=-1))
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + conv1d(mixed.transpose(0, 2, 1, 3).reshape(x.shape), w, f"{at}.attn.c_proj")
        x = x + conv1d(gelu(conv1d(layer_norm(x, w, f"{at}.ln_2"), w, f"{at}.mlp.c_fc")), w, f"{at}.mlp.c_proj")
        block += 1
    return layer_norm(x, w, "ln_f") @ w.get("lm_head.weight", w["wte.weight"]).T


def windows(x, extent, stride, padding, fill=0.0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (extent, extent), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def conv2d(x, weight, stride):
    extent = weight.shape[-1]
    return np.tensordot(windows(x, extent, stride, extent // 2), weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def resnet50(w, images):
    def normed(x, name):
        scale = w[f"{name}.weight"] / np.sqrt(w[f"{name}.running_var"] + 1e-5)
        shift = w[f"{name}.bias"] - w[f"{name}.running_mean"] * scale
        return x * scale[:, None, None] + shift[:, None, None]

    x = images.astype(np.float32).transpose(0, 3, 1, 2)
    x = np.maximum(normed(conv2d(x, w["conv1.weight"], 2), "bn1"), 0)
    x = windows(x, 3, 2, 1, -np.inf).max((4, 5))
    for stage, blocks in enumerate([3, 4, 6, 3], 1):
        for block in range(blocks):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = np.maximum(normed(conv2d(x, w[f"{at}.conv1.weight"], 1), f"{at}.bn1"), 0)
            y = np.maximum(normed(conv2d(y, w[f"{at}.conv2.weight"], stride), f"{at}.bn2"), 0)
            y = normed(conv2d(y, w[f"{at}.conv3.weight"], 1), f"{at}.bn3")
            if block == 0:
                x = normed(conv2d(x, w[f"{at}.downsample.0.weight"], stride), f"{at}.downsample.1")
            x = np.maximum(x + y, 0)
    return x.mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"]


MODELS = {
    "gpt.hf-gpt2": gpt2,
    "gpt-untied.hf-gpt2": gpt2,
    "resnet50.torchvision-resnet": resnet50,
}


def other_weights(weights, seed):
    """Other numbers in the same places: of a network that somebody else trained. Some are of half the digits."""
    random = np.random.default_rng(seed)
    others = {}
    for number, (name, weight) in enumerate(sorted(weights.items())):
        drawn = (weight * (1 + 0.1 * random.standard_normal(weight.shape))).astype(np.float32)
        others[name] = drawn.astype(np.float16) if number % 5 == 3 else drawn
    return others


def written(folder):
    import onnx
    import onnxruntime
    from safetensors.numpy import save_file

    checks = sorted(folder.glob("*.check.safetensors"))
    assert len(checks) == 15, f"{len(checks)} models in {folder}"
    for path in checks:
        name = path.name.removesuffix(".check.safetensors")
        check = read(path)
        weights = read(folder / f"{name}.safetensors")
        assert weights and all(np.isfinite(weight).all() for weight in weights.values()), name
        for renamed in folder.glob(f"{name}.*.safetensors"):
            if renamed != path and "given" not in renamed.name and "loaded" not in renamed.name:
                count = sum(weight.size for weight in read(renamed).values())
                # An LSTM's one bias is two in PyTorch.
                assert count >= sum(weight.size for weight in weights.values()), renamed.name
        onnx.checker.check_model(folder / f"{name}.onnx", full_check=True)
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
        for samples in (2, 1):
            (logits,) = session.run(["logits"], {"inputs": check["inputs"][:samples]})
            compare(f"{name}.onnx, {samples} samples", check["logits"][:samples], logits)
    for name, model in MODELS.items():
        check = read(folder / f"{name.split('.')[0]}.check.safetensors")
        weights = read(folder / f"{name}.safetensors")
        compare(f"{name} from Plimsoll", check["logits"], model(weights, check["inputs"]))
        save_file(other_weights(weights, 1), folder / f"{name}.given.safetensors")


def loaded(folder):
    for name, model in MODELS.items():
        check = read(folder / f"{name.split('.')[0]}.check.safetensors")
        given = {n: w.astype(np.float32) for n, w in read(folder / f"{name}.given.safetensors").items()}
        logits = read(folder / f"{name}.loaded.safetensors")["logits"]
        assert np.abs(logits - check["logits"]).max() > 1e-2, f"{name}: nothing was loaded"
        compare(f"{name} into Plimsoll", logits, model(given, check["inputs"]))


if __name__ == "__main__":
    {"written": written, "loaded": loaded}[sys.argv[1]](pathlib.Path(sys.argv[2]))
