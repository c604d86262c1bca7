"""Which exceptions mean that memory ran out."""

import sys
import unittest

from plimsoll._failure import of_memory


def named(name, base=Exception):
    return type(name, (base,), {})


class OfMemory(unittest.TestCase):
    def test_the_exceptions_of_every_framework_are_known(self):
        for error in [
            MemoryError("Unable to allocate 728. TiB for an array"),
            named("_ArrayMemoryError", MemoryError)(),
            named("OutOfMemoryError", RuntimeError)("CUDA out of memory. Tried to allocate 2.00 GiB."),
            named("ResourceExhaustedError")("OOM when allocating tensor with shape[8192,8192]"),
            named("XlaRuntimeError", RuntimeError)("RESOURCE_EXHAUSTED: Out of memory allocating 17592186044416 bytes."),
            RuntimeError("CUDA error: out of memory"),
            RuntimeError("MPS backend out of memory (MPS allocated: 5.05 GB"),
            RuntimeError("[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory"),
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            RuntimeError("DataLoader worker (pid 71) is killed by signal: Killed."),
            RuntimeError("DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that dataloader's "
                         "workers are out of shared memory. insufficient shared memory (shm)"),
            OSError(12, "Cannot allocate memory"),
            ValueError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
        ]:
            self.assertTrue(of_memory(error), repr(error))

    def test_other_errors_are_not(self):
        for error in [
            None,
            ValueError("mat1 and mat2 shapes cannot be multiplied"),
            RuntimeError("CUDA error: device-side assert triggered"),
            RuntimeError("DataLoader worker (pid 71) is killed by signal: Terminated."),
            FileNotFoundError("no such file"),
            KeyboardInterrupt("out of memory"),
            SystemExit("out of memory"),
        ]:
            self.assertFalse(of_memory(error), repr(error))

    def test_what_an_error_came_from_counts(self):
        try:
            try:
                raise MemoryError
            except MemoryError as cause:
                raise ValueError("training failed") from cause
        except ValueError as error:
            self.assertTrue(of_memory(error))
        try:
            try:
                raise MemoryError
            except MemoryError:
                raise ValueError("another matter") from None
        except ValueError as error:
            self.assertFalse(of_memory(error))

    @unittest.skipUnless(sys.version_info >= (3, 11), "there are no groups")
    def test_the_errors_of_a_group_count(self):
        inner = ExceptionGroup("of a task", [ValueError("other"), MemoryError()])
        self.assertTrue(of_memory(ExceptionGroup("of all", [KeyError("x"), inner])))
        self.assertFalse(of_memory(ExceptionGroup("of all", [KeyError("x"), ValueError("other")])))
        self.assertFalse(of_memory(BaseExceptionGroup("of all", [KeyboardInterrupt("out of memory")])))

    def test_an_error_without_words_is_none(self):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError

        self.assertFalse(of_memory(Mute()))
