"""Writes weights as PyTorch saves them, and what PyTorch computes with them: `tests/exchange.rs` loads the files.

    pip install torch==2.15.0 safetensors==0.8.0
    python from_torch.py

For each model `torch-<name>.safetensors` has its `state_dict`, and under `check/inputs` and `check/logits` a batch and what
the model makes of it. Everything is small and from a fixed seed. `gpt` has the names and layouts of Hugging Face's GPT-2 and
buffers as old versions of it saved them; `mixed` is of float16, bfloat16, float32 and float64.
"""

import math
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).parent


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as in GPT-2."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.2)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.2)

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.register_buffer("bias", torch.ones(1, 1, context, context).tril().bool())
        self.register_buffer("masked_bias", torch.tensor(-1e4))

    def forward(self, x):
        batch, tokens, width = x.shape
        split = lambda t: t.view(batch, tokens, self.heads, -1).transpose(1, 2)
        q, k, v = map(split, self.c_attn(x).split(width, dim=2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(~self.bias[:, :, :tokens, :tokens], float("-inf"))
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, context)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt2(nn.Module):
    """GPT-2 under Hugging Face's names, with the exact gelu."""

    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(Block(width, heads, context) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


class Cnn(nn.Module):
    """What `tests/exchange.rs` calls `cnn`: images come as [batch, height, width, channels]."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 8, 3, padding=1, bias=True)
        self.batch_norm0 = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 6, (3, 1), groups=2, bias=False)
        self.layer_norm0 = nn.LayerNorm(6)
        self.dense0 = nn.Linear(6, 5)

    def forward(self, x):
        x = self.batch_norm0(self.conv0(x.permute(0, 3, 1, 2))).relu()
        x = nn.functional.max_pool2d(x, 2)
        x = self.conv1(x).mean((2, 3))
        return self.dense0(self.layer_norm0(x))


class Convolutions(nn.Module):
    """What `tests/exchange.rs` calls `convolutions`: images come as [batch, height, width, channels]."""

    def __init__(self):
        super().__init__()
        self.conv_transpose0 = nn.ConvTranspose2d(4, 6, (4, 3), stride=2, padding=1, groups=2)
        self.group_norm0 = nn.GroupNorm(3, 6)
        self.conv1d0 = nn.Conv1d(6, 5, 3, dilation=2, bias=True)
        self.rms_norm0 = nn.RMSNorm(5, eps=1e-5)

    def forward(self, x):
        x = self.group_norm0(self.conv_transpose0(x.permute(0, 3, 1, 2)))
        x = self.conv1d0(x.flatten(2))
        return self.rms_norm0(x.transpose(1, 2))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding0 = nn.Embedding(11, 7)
        self.add_module(f"{kind.__name__.lower()}0", kind(7, 9, batch_first=True))
        self.dense0 = nn.Linear(9, 5)

    def forward(self, tokens):
        _, layer, head = self.children()
        return head(layer(self.embedding0(tokens))[0][:, -1])


def randomise(model):
    """Norms and their statistics begin as ones and zeros, which would hide mistakes."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if "running_var" in name:
                tensor.uniform_(0.5, 2)
            elif tensor.dtype == torch.float32 and tensor.dim() == 1:
                tensor.copy_(torch.randn(tensor.shape) * 0.3 + (1 if name.endswith("weight") else 0))
    return model.eval()


def write(name, model, inputs, convert=lambda name, tensor: tensor):
    state = {name: convert(name, tensor) for name, tensor in randomise(model).state_dict().items()}
    model.load_state_dict(state)
    with torch.no_grad():
        logits = model(inputs)
    tensors = {**state, "check/inputs": inputs, "check/logits": logits}
    save_file({n: t.detach().clone().contiguous() for n, t in tensors.items()}, HERE / f"torch-{name}.safetensors")


def mixed(name, tensor):
    kinds = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    return tensor.to(kinds[sum(name.encode()) % 4]) if tensor.is_floating_point() else tensor


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    write("gpt", Gpt2(23, 16, 12, 3, 2), torch.randint(0, 23, (2, 10), dtype=torch.int32))
    write("cnn", Cnn(), torch.randn(2, 8, 8, 3))
    write("lstm", Recurrent(nn.LSTM), torch.randint(0, 11, (3, 6), dtype=torch.int32))
    write("gru", Recurrent(nn.GRU), torch.randint(0, 11, (3, 6), dtype=torch.int32))
    write("mixed", Cnn(), torch.randn(2, 8, 8, 3), mixed)
    write("convolutions", Convolutions(), torch.randn(2, 3, 2, 4))
