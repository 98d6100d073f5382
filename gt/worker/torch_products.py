"""Products by GT's kernel where another thread helps: its threads are cheaper to wake.

OpenMP's, which MKL uses, sleep between two products (gt/config/environment.py says why), and waking
them takes as long as one of two matrices of 256 x 256 does. With one thread the kernel is as fast,
and its bits do not depend on their number, so that workers of any number have the same.
"""

import torch
from torch import Tensor

from gt.worker import own_kernels
from gt.worker.backend import Kernel


def matmul(self: Tensor, other: Tensor) -> Tensor:
    """torch.matmul."""
    product = _product(self, other, None) if other.dim() == 2 else None
    return self.matmul(other) if product is None else product


def linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """torch.nn.functional.linear."""
    product = _product(input, weight.t(), bias) if weight.dim() == 2 else None
    return torch._C._nn.linear(input, weight, bias) if product is None else product  # noqa: SLF001


def _product(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor | None:
    """left @ right + bias: [..., m, k] and [k, n]; None where PyTorch is to run it."""
    operands = (left, right) if bias is None else (left, right, bias.unsqueeze(0))
    fits = left.dim() > 1 and left.shape[-1] == right.shape[0] > 0 and left.numel() > 0
    own = own_kernels.chosen("matmul", *operands) if fits else None
    if own is None or (bias is not None and bias.stride(0) != 1):
        return None
    out = left.new_empty((*left.shape[:-1], right.shape[1]))
    rows = left.reshape(-1, left.shape[-1])
    own.matmul(out.view(-1, right.shape[1]), rows, right, bias, threads=own_kernels.threads_most())
    return out


KERNELS: dict[str, Kernel] = {"matmul": matmul, "linear": linear}
