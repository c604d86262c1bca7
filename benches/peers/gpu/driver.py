"""What the driver says of the GPU, through NVML: without a context, and so without using any of its memory."""

import ctypes
import os


# Where the library lies: found by the loader, or where containers have the driver mounted.
PLACES = ["libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"]


def load():
    for place in PLACES[:-1]:
        try:
            return ctypes.CDLL(place)
        except OSError:
            pass
    return ctypes.CDLL(PLACES[-1])


class Driver:
    """The first GPU that may be used. Where there is no driver, all that it says is `None`."""

    def __init__(self):
        self.name = self.version = self._handle = None
        try:
            self._nvml = load()
            self._call("nvmlInit_v2")
            text = ctypes.create_string_buffer(96)
            self._call("nvmlSystemGetDriverVersion", text, 96)
            self.version = text.value.decode()
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
            handle = ctypes.c_void_p()
            if visible.startswith(("GPU-", "MIG-")):
                self._call("nvmlDeviceGetHandleByUUID", visible.encode(), ctypes.byref(handle))
            else:
                index = ctypes.c_uint(int(visible or 0))
                self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            self._call("nvmlDeviceGetName", handle, text, 96)
            self.name = text.value.decode()
            self._handle = handle
        except (OSError, AttributeError, ValueError):
            pass

    def _call(self, name, *arguments):
        if status := getattr(self._nvml, name)(*arguments):
            raise OSError(f"{name} answers {status}")

    def used(self):
        """The bytes of the GPU's memory that are in use, by whomever."""
        if self._handle is None:
            return None
        memory = (ctypes.c_ulonglong * 3)()
        try:
            self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        except OSError:
            return None
        return memory[2]
