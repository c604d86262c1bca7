"""What `check.py` does in NumPy, by PyTorch's modules: run by hand, its output is `with_torch.txt`.

    pip install torch==2.15.0 safetensors==0.8.0 numpy==2.4.6
    exchange write DIR; python with_torch.py written DIR; exchange load DIR; python with_torch.py loaded DIR

Modules take the exported weights with `load_state_dict(strict=True)` and must compute Plimsoll's logits; `state_dict`s of
modules that PyTorch initialised are loaded by Plimsoll, which must compute PyTorch's.
"""

import pathlib
import sys

import torch
from check import compare, read
from from_torch import Gpt2, randomise
from safetensors.torch import load_file, save_file
from torch import nn


class Bottleneck(nn.Module):
    """torchvision's, with its names."""

    def __init__(self, inputs, width, stride, project):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        conv = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
        self.downsample = nn.Sequential(conv, nn.BatchNorm2d(4 * width)) if project else None

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet50(nn.Module):
    """torchvision's, with its names; images come as [batch, height, width, channels]."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, blocks in enumerate([3, 4, 6, 3]):
            layers, width = [], 64 << stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, width, stride, block == 0))
                inputs = 4 * width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x.permute(0, 3, 1, 2))).relu()
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An embedding, a recurrent layer and a head: all times of a GRU, the last of an LSTM."""

    def __init__(self, kind):
        super().__init__()
        self.embedding0 = nn.Embedding(50, 12)
        self.memory = kind(12, 20, batch_first=True)
        self.dense0 = nn.Linear(20, 7)

    def forward(self, tokens):
        states = self.memory(self.embedding0(tokens))[0]
        return self.dense0(states[:, -1] if isinstance(self.memory, nn.LSTM) else states)


def gpt2(tied):
    model = Gpt2(97, 24, 48, 4, 2)
    if not tied:
        model.lm_head.weight = nn.Parameter(torch.randn(97, 48) * 0.2)
    return model


MODELS = {
    "gpt.hf-gpt2": lambda: gpt2(True),
    "gpt-untied.hf-gpt2": lambda: gpt2(False),
    "resnet50.torchvision-resnet": lambda: ResNet50(10),
    "lstm.torch": lambda: Recurrent(nn.LSTM),
    "gru.torch": lambda: Recurrent(nn.GRU),
}


def inputs(folder, name):
    return torch.from_numpy(read(folder / f"{name.split('.')[0]}.check.safetensors")["inputs"])


def logits(model, x):
    with torch.no_grad():
        return model.eval()(x).numpy()


def written(folder):
    torch.manual_seed(1)
    for name, make in MODELS.items():
        model = make()
        state = load_file(folder / f"{name}.safetensors")
        # What is not saved: buffers that are computed, and the head that is the table of tokens.
        own = model.state_dict()
        state |= {n: own[n] for n in own if n.endswith((".attn.bias", ".masked_bias", "num_batches_tracked"))}
        if name == "gpt.hf-gpt2":
            state["lm_head.weight"] = state["transformer.wte.weight"]
        model.load_state_dict(state, strict=True)
        ours = read(folder / f"{name.split('.')[0]}.check.safetensors")["logits"]
        compare(f"{name} from Plimsoll", ours, logits(model, inputs(folder, name)))
        given = {n: t.clone().contiguous() for n, t in randomise(make()).state_dict().items()}
        if "gpt" in name:
            # As they are drawn, logits would be in the hundreds.
            given = {n: t * 0.3 if t.is_floating_point() and t.dim() == 2 else t for n, t in given.items()}
        save_file(given, folder / f"{name}.given.safetensors")


def loaded(folder):
    for name, make in MODELS.items():
        model = make()
        model.load_state_dict(load_file(folder / f"{name}.given.safetensors"), strict=True)
        ours = read(folder / f"{name}.loaded.safetensors")["logits"]
        compare(f"{name} into Plimsoll", ours, logits(model, inputs(folder, name)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}")
    {"written": written, "loaded": loaded}[sys.argv[1]](pathlib.Path(sys.argv[2]))
