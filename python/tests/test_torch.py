"""What is done with PyTorch on a GPU, against a stand-in for it: where these tests run there is no GPU.

The stand-in has the functions of PyTorch that are called, with their contract: calls wait until CUDA is initialised,
observers are called before the exception is raised. The snapshot that it writes is a recording of the real allocator.
"""

import json

from support import Case, leaking_snapshot

TORCH = '''
from torch import _C, cuda

class OutOfMemoryError(RuntimeError):
    pass

def empty(size, device):
    cuda._lazy_init()
    if size > 100:
        for observer in _C.observers:
            observer(0, size, 200, 0)
        _C.log("raised")
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.69 GiB "
                               "of which 10.00 GiB is free. Process 1 has 13.00 GiB memory in use. Of the allocated "
                               "memory 12.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but "
                               "unallocated.")
'''
CORE = '''
import json
observers = []
def _cuda_attach_out_of_memory_observer(observer):
    log("observed")
    observers.append(observer)
def log(*of):
    with open("log", "a") as file:
        print(json.dumps(of), file=file)
'''
CUDA = '''
from torch import _C
from torch.cuda import memory
initialised, waiting = False, []
def _lazy_call(action, **more):
    action() if initialised else waiting.append(action)
def _lazy_init():
    global initialised
    if not initialised:
        _C.log("initialised")
        initialised = True
        for action in waiting:
            action()
'''
MEMORY = '''
import shutil, time
from torch import _C
def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=None):
    _C.log("recorded", enabled, context, stacks, max_entries)
def _dump_snapshot(path):
    _C.log("written")
    time.sleep(0.01)
    shutil.copy("real.pickle", path)
'''


class Torch(Case):
    def setUp(self):
        super().setUp()
        for name, text in [("__init__", TORCH), ("_C", CORE), ("cuda/__init__", CUDA), ("cuda/memory", MEMORY)]:
            self.write(f"torch/{name}.py", text)
        leaking_snapshot(self.folder / "real.pickle")

    def log(self):
        lines = (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []
        return [json.loads(line) for line in lines]

    def test_recording_waits_for_the_gpu_and_is_bounded(self):
        ran = self.run_program("import torch; torch._C.log('imported'); torch.empty(1, 'cuda')")
        self.assertEqual((ran.status, ran.err, ran.left), (0, "", []))
        recorded = ["recorded", "all", "alloc", "python", 100_000]
        self.assertEqual(self.log(), [["imported"], ["initialised"], recorded, ["observed"]])

    def test_without_a_gpu_nothing_is_touched(self):
        self.run_program("import torch")
        self.assertEqual(self.log(), [])

    def test_the_snapshot_is_written_before_the_stack_unwinds(self):
        ran = self.run_program("import torch\ntorch.empty(1000, 'cuda')")
        self.assert_own_error(ran, "CUDA out of memory. Tried to allocate 20.00 GiB.")
        self.assertEqual(self.log()[-2:], [["written"], ["raised"]])
        self.assertEqual(self.assert_verdict(ran, ["snapshot.pickle", "message.txt"]), "leaking")

    def test_a_watch_that_comes_late_records_from_then_on(self):
        ran = self.run_program(
            "import torch; torch.empty(1, 'cuda'); import plimsoll; plimsoll.watch(); torch.empty(1000, 'cuda')",
            PLIMSOLL_EXPLAIN=None,
        )
        self.assertEqual(self.assert_verdict(ran, ["snapshot.pickle", "message.txt"]), "leaking")

    def test_a_refusal_that_the_program_survives_leaves_nothing(self):
        ran = self.run_program(
            "import torch\ntry:\n    torch.empty(1000, 'cuda')\nexcept torch.OutOfMemoryError:\n    print('smaller')"
        )
        self.assertEqual((ran.status, ran.out, ran.err, ran.left), (0, "smaller\n", "", []))
        self.assertIn(["written"], self.log())

    def test_a_program_that_is_refused_often_is_not_held_up_and_its_last_refusal_is_kept(self):
        ran = self.run_program(
            """
            import torch
            for attempt in range(200):
                try:
                    torch.empty(1000, 'cuda')
                except torch.OutOfMemoryError:
                    pass
            torch.empty(1000, 'cuda')
            """
        )
        self.assertLess(self.log().count(["written"]), 20)
        self.assertEqual(self.assert_verdict(ran, ["snapshot.pickle", "message.txt"]), "leaking")

    def test_a_snapshot_that_cannot_be_written_costs_the_snapshot(self):
        self.write("torch/cuda/memory.py", MEMORY.replace(
            'shutil.copy("real.pickle", path)',
            'open(path, "w").write("half"); raise OSError(28, "No space left on device")'))
        ran = self.run_program("import torch\ntorch.empty(1000, 'cuda')")
        self.assert_own_error(ran, "CUDA out of memory. Tried to allocate 20.00 GiB.")
        self.assertIn("plimsoll: no snapshot of PyTorch's allocator: OSError(28, 'No space left on device')", ran.err)
        self.assert_verdict(ran, ["message.txt"])
        self.assertFalse((ran.left[0] / "snapshot.pickle").exists(), "half a snapshot is none")

    def test_an_allocator_that_cannot_be_recorded_is_left_alone(self):
        self.write("torch/cuda/memory.py", "")
        ran = self.run_program("import torch\ntorch.empty(1, 'cuda')\nprint('fine')\ntorch.empty(1000, 'cuda')")
        self.assertEqual(ran.out, "fine\n")
        self.assert_own_error(ran, "CUDA out of memory. Tried to allocate 20.00 GiB.")
        self.assertIn("plimsoll: PyTorch's allocator was not recorded: AttributeError", ran.err)
        self.assert_verdict(ran, ["message.txt"])

    def test_the_names_of_pytorch_2_0_are_known(self):
        self.write("torch/cuda/memory.py", MEMORY.replace(
            '(enabled="all", context="all", stacks="all", max_entries=None)',
            "(enabled, trace_alloc_max_entries=1, trace_alloc_record_context=False)").replace(
            "enabled, context, stacks, max_entries)", "enabled, trace_alloc_max_entries, trace_alloc_record_context)"))
        self.run_program("import torch; torch.empty(1, 'cuda')")
        self.assertIn(["recorded", True, 100_000, True], self.log())

    def test_a_package_that_fails_to_import_fails_as_without(self):
        self.write("torch/__init__.py", "raise ImportError('libcudart.so is missing')")
        ran = self.run_program("import torch")
        self.assert_own_error(ran, "ImportError: libcudart.so is missing")
        self.assertNotIn("\nplimsoll: ", ran.err)
