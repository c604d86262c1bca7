"""Square matrix products in PyTorch, a turn at a time.

For each line `SIZE LAYOUT` that it reads it multiplies for a while and writes the median rate in GFLOP/s, as
`gemm-bench turns` does for Plimsoll. `gemm` beside this file lets the two take turns.
"""

import statistics
import sys
import time

import common
import torch

# The seconds of a turn, as in `benches/gemm`.
TURN = 0.4


def turn(size, layout):
    a, b = (torch.rand(size, size) * 2 - 1 for _ in range(2))
    a, b = (x.t() if how == "t" else x for x, how in zip((a, b), layout))
    c = torch.empty(size, size)
    torch.mm(a, b, out=c)
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < TURN:
        begin = time.perf_counter()
        torch.mm(a, b, out=c)
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / statistics.median(times) / 1e9


if __name__ == "__main__":
    torch.set_num_threads(common.THREADS)
    for line in sys.stdin:
        size, layout = line.split()
        print(turn(int(size), layout), flush=True)
