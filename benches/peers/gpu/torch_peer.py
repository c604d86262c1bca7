"""The workloads in PyTorch on the GPU. Words of a variant:

- `eager`; `compile`, model and loss under `torch.compile`, with `autotuned` by `max-autotune-no-cudagraphs`, with
  `graphs` by `reduce-overhead`, with `dynamic` once for all shapes; `captured`, the whole step eager in one CUDA graph.
- bf16 is by autocast, or, with `cast`, by hand, as Plimsoll does: the residual stream is bf16, and each parameter is
  converted where it is used. Compiled, the loss converts logits to f32 as it reads them; eager, it takes them as they
  are, which saves the bytes of a copy.
- `padded`: the tokens' table has a multiple of 64 rows, so that products with it are aligned; logits are cut to the
  vocabulary, and the loss is the same.
- `expandable`: the allocator's expandable segments.

All use Adam's fused kernel, attention that does not materialise scores, TF32 where f32 is multiplied, and channels-last
images.
"""

import contextlib
import os
import sys
import tempfile

if any("expandable" in word for word in sys.argv):
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import measure  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch_models import Gpt, ResNet50, Sequential, load  # noqa: E402


def draw(workload):
    """First weights of the right distributions, drawn on the default device."""
    for name, shape, kind, scale in workload.parameters():
        values = torch.empty(shape)
        if kind == "constant":
            values.fill_(scale)
        elif kind == "uniform":
            values.uniform_(-scale, scale)
        else:
            values.normal_(0.0, scale)
        yield name, values


class Peer:
    def __init__(self, workload, variant, device, weights=None):
        self.workload, self.device, self.on_gpu = workload, device, device == "cuda"
        half = workload.precision == "bf16"
        cast = "cast" in variant
        self.graphs = "graphs" in variant
        kind = workload.model["kind"]
        with torch.device(device):
            if kind == "gpt":
                compute = torch.bfloat16 if half and cast else torch.float32
                self.model = Gpt(workload, compute, 64 if "padded" in variant else 1)
            else:
                self.model = ResNet50(workload) if kind == "resnet50" else Sequential(workload)
            load(self.model, weights or draw(workload))
        captured = "captured" in variant
        # The captured step counts its steps on the device.
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=workload.rate, fused=True, capturable=captured and self.on_gpu
        )

        def autocast():
            on = half and not cast
            return torch.autocast(device, torch.bfloat16) if on else contextlib.nullcontext()

        def loss_of(x, y):
            with autocast():
                prediction = self.model(x)
                if workload.loss == "mse":
                    return F.mse_loss(prediction, y)
                prediction = prediction.flatten(0, -2)
                if cast and not (half and "eager" in variant):
                    prediction = prediction.float()
                return F.cross_entropy(prediction, y.flatten())

        if "compile" in variant:
            mode = "reduce-overhead" if self.graphs else None
            mode = "max-autotune-no-cudagraphs" if "autotuned" in variant else mode
            loss_of = torch.compile(loss_of, mode=mode, dynamic=True if "dynamic" in variant else None)
        self.loss_of = loss_of
        self.train = self.step
        if captured:
            self.train = self.capture()

    def step(self, x, y):
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        """The step in one graph, for the batch that it is first given."""
        graph, loss = None, None

        def train(x, y):
            nonlocal graph, loss
            if graph is None:
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        self.step(x, y)
                torch.cuda.current_stream().wait_stream(stream)
                self.optimizer.zero_grad(set_to_none=True)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    loss = self.step(x, y)
            graph.replay()
            return loss

        return train

    def batch(self):
        workload, device = self.workload, self.device
        if workload.model["kind"] == "gpt":
            shape = (workload.batch, workload.tokens)
            return [torch.randint(workload.model["vocabulary"], shape, device=device) for _ in range(2)]
        x = torch.randn((workload.batch, *workload.features), device=device)
        if x.dim() == 4:
            # Plimsoll's images are [height, width, channels], which is what channels-last means.
            x = x.permute(0, 3, 1, 2)
        if workload.loss == "mse":
            return [x, torch.randn((workload.batch, *workload.target), device=device)]
        return [x, torch.randint(workload.classes, (workload.batch,), device=device)]

    def place(self, x, y):
        x, y = (torch.from_numpy(field).long() for field in (x, y))
        if self.on_gpu:
            # From memory that is not pinned, the copy would wait for all steps before.
            x, y = x.pin_memory(), y.pin_memory()
        return [field.to(self.device, non_blocking=True) for field in (x, y)]

    def wait(self, loss):
        if self.on_gpu:
            torch.cuda.synchronize()
        return loss.item()

    def settle(self):
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def memory(self):
        if not self.on_gpu:
            return {}
        free, total = torch.cuda.mem_get_info()
        segments = torch.cuda.memory_snapshot()
        return {
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            # Replaced by what NVML says is this process's, where there is NVML.
            "device_used_bytes": total - free,
            "device_used_at_end_bytes": total - free,
            "expandable_segments": any(segment.get("is_expandable") for segment in segments),
        }


def versions():
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    # Compilation is timed as it is the first time, whatever earlier runs have left.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        measure.main("torch", versions(), Peer)
