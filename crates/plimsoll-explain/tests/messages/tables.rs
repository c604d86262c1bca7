//! Tables that people looked at before an error, in the forms in which tools print them.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "gpustat, others",
        OtherProcess,
        &["nvidia-smi"],
        &["batch"],
        "[0] Tesla V100-SXM2-32GB | 61'C,  99 % | 30211 / 32510 MB | bob(30201M) root(4M)\n\
         [1] Tesla V100-SXM2-32GB | 35'C,   0 % |     3 / 32510 MB |\n\
         Traceback (most recent call last):\n  File \"run.py\", line 7, in <module>\n    model.cuda()\n\
         RuntimeError: CUDA error: out of memory\n",
    ),
    case(
        "gpustat, another device is in use",
        Full,
        &["nvidia-smi"],
        &["bob"],
        "[0] Tesla V100-SXM2-32GB | 35'C,   0 % |     3 / 32510 MB |\n\
         [1] Tesla V100-SXM2-32GB | 61'C,  99 % | 30211 / 32510 MB | bob(30201M)\n\
         RuntimeError: CUDA error: out of memory\n",
    ),
    case(
        "figures asked for by name",
        OtherProcess,
        &["nvidia-smi"],
        &["batch"],
        "name, memory.total [MiB], memory.used [MiB]\nNVIDIA L4, 23034 MiB, 21877 MiB\nNVIDIA L4, 23034 MiB, 1 MiB\n\
         RuntimeError: CUDA error: out of memory\n",
    ),
    case(
        "figures asked for by name, below the error",
        Full,
        &["nvidia-smi"],
        &["Another process"],
        "RuntimeError: CUDA error: out of memory\n\
         index, memory.used [MiB], memory.total [MiB]\n0, 21877 MiB, 23034 MiB\n",
    ),
    case(
        "a table of a container, where no process is listed",
        OtherProcess,
        &["nvidia-smi"],
        &[],
        "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |\n\
         | N/A   31C    P0              52W / 400W |  38911MiB / 40960MiB |      0%      Default |\n\
         |  No running processes found                                                           |\n\
         $ python serve.py\nRuntimeError: CUDA error: out of memory\n",
    ),
    case(
        "rocm-smi, shares of each device",
        Full,
        &["rocm-smi"],
        &["nvidia-smi"],
        "GPU  Temp (DieEdge)  AvgPwr  SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%\n\
         0    44.0c           55.0W   800Mhz  1600Mhz 0%   auto  300.0W   97%   0%\n\
         RuntimeError: HIP error: out of memory\n",
    ),
];
