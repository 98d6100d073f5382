"""Products by GT's kernel if more than one thread helps: its threads are cheaper to wake.

OpenMP's threads, which MKL uses, sleep between two products (gt/config/environment.py says why),
and waking them takes as long as a product of two 256 x 256 matrices. With one thread the kernel is
as fast, and its bits do not depend on the number of threads, so all workers get the same.
"""

import torch
from torch import Tensor

from gt.worker.backend import Kernel
from gt.worker.pytorch import own_kernels


def matmul(self: Tensor, other: Tensor) -> Tensor:
    """torch.matmul."""
    product = own_kernels.run("matmul", self, other, None, None)
    return self.matmul(other) if product is None else product[0]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """torch.nn.functional.linear."""
    product = own_kernels.run("linear", input, weight, bias, None, None)
    if product is None:
        return torch._C._nn.linear(input, weight, bias)  # noqa: SLF001
    return product[0]


KERNELS: dict[str, Kernel] = {"matmul": matmul, "linear": linear}
