"""Which exceptions mean that memory ran out.

Frameworks are told by the names of their exceptions and by their words: none of them is imported for it.
"""

from typing import Iterable, Optional

# Classes that say it by themselves, by name: `torch.OutOfMemoryError` and its older place in `torch.cuda`, CuPy's,
# TensorFlow's. Built-in MemoryError has NumPy's among its subclasses.
_NAMES = frozenset(["OutOfMemoryError", "ResourceExhaustedError"])

# Words of those that share their class with other errors, in lower case.
_WORDS = (
    "resource_exhausted",  # XLA: JAX, TensorFlow
    "out of memory",  # CUDA, HIP, XPU and MPS as PyTorch words them; cudaErrorMemoryAllocation
    "defaultcpuallocator:",  # PyTorch, the host's memory: "can't allocate memory", "not enough memory"
    "_status_alloc_failed",  # cuBLAS, cuDNN, cuSPARSE, cuFFT
    "cudaerrormemoryallocation",
    "cannot allocate memory",  # ENOMEM
    "insufficient shared memory (shm)",  # a worker of a PyTorch DataLoader, by SIGBUS
    "is killed by signal: killed",  # a worker of a PyTorch DataLoader, by the system
    "failed to allocate memory",  # ONNX Runtime, TensorFlow
    "cudamalloc failed",  # llama.cpp, FAISS
    "std::bad_alloc",
    "no available memory for the cache blocks",  # vLLM
    "that can be stored in kv cache",  # vLLM
    "kv cache is needed, which is larger than",  # vLLM
)


def of_memory(error: Optional[BaseException]) -> bool:
    """Whether this exception, or what caused it, is a failure of memory. One that a person made never is."""
    return any(_says_so(link) for link in chain(error))


def chain(error: Optional[BaseException]) -> Iterable[BaseException]:
    """The exception and those it came from, as its traceback shows them."""
    seen = set()
    left = [error]
    while left:
        error = left.pop()
        if error is None or id(error) in seen or not isinstance(error, Exception):
            continue
        seen.add(id(error))
        yield error
        cause = error.__cause__
        left.append(cause if cause is not None or error.__suppress_context__ else error.__context__)
        # A group, as asyncio.TaskGroup raises it, holds the errors of its tasks.
        members = getattr(error, "exceptions", None)
        if isinstance(members, tuple):
            left.extend(member for member in members if isinstance(member, BaseException))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if any(kind.__name__ in _NAMES for kind in type(error).__mro__):
        return True
    try:
        text = str(error).lower()
    except Exception:
        return False
    return any(words in text for words in _WORDS)
