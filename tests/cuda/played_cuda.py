"""GT's CUDA kernels on a CPU, through a stand-in of CUDA's driver (csrc/emulator/driver)."""

import ctypes
import importlib
import json

import torch

from gt.worker.cuda.kernels import CudaKernels

native = importlib.import_module("gt._kernels")
SOURCES = ("random", "rows", "adamw", "gemm", "skinny", "attention", "attention_backward")
SOURCES += ("all_reduce", "gather", "exchange", "gemm_sm90", "attention_sm90")
SOURCES += ("attention_backward_sm90",)
IMAGES = dict.fromkeys(SOURCES, b"an image")
# Names under which kernels write; anything else is read.
WRITTEN = ("out", "loss", "gradient", "total", "keep", "output", "logsumexp", "products")
WRITTEN += ("grad_query", "grad_key", "grad_value", "grad_x", "grad_weight", "grad_bias")
WRITTEN += ("weight_sums", "bias_sums", "log_probs", "mean", "rstd")
CPU = torch.device("cpu")


def driver_of(library):
    """The stand-in, for what only tests call."""
    loaded = ctypes.CDLL(str(library))
    loaded.stand_in_launched.restype = ctypes.c_char_p
    loaded.stand_in_shared.restype = ctypes.c_char_p
    loaded.stand_in_steps.restype = ctypes.c_uint64
    return loaded


class Played(CudaKernels):
    """Kernels whose device is the CPU: every operand becomes memory that the stand-in knows."""

    def __init__(self, library, driver, device_index=0, stream=0):
        super().__init__(native.Cuda(str(library), IMAGES), CPU, self.counted)
        self.number = stream
        self.driver, self.device_index = driver, device_index
        self.known = []
        self.launches = 0
        self.is_written = True

    def address(self, name, tensor, dtype):
        address = super().address(name, tensor, dtype)
        if address:
            written = self.is_written and name not in WRITTEN
            size = ctypes.c_size_t(tensor.nbytes)
            where = (ctypes.c_void_p(address), size, self.device_index, written)
            self.driver.stand_in_add(name.encode(), *where)
            self.known.append((address, tensor))
        return address

    def counted(self):
        self.launches += 1
        return self.number

    def launched(self):
        """The last launch."""
        return json.loads(self.driver.stand_in_launched())

    def forget(self):
        for address, _ in self.known:
            self.driver.stand_in_remove(ctypes.c_void_p(address))
        self.known.clear()
