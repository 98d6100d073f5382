"""Runs one program on the host and on the device `mux`, and compares the results."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from gt.torch import MuxTensor, functions

Program = Callable[[str], Any]


def ramp(*sizes: int) -> torch.Tensor:
    """0, 1, 2, … of these sizes, in memory of its own."""
    return torch.arange(float(math.prod(sizes))).reshape(sizes).clone()


def host(value: Any) -> Any:
    """A tensor's copy on the host, without its history."""
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def assert_same_on_both(program: Program) -> None:
    """Tensors to 1e-5, all else exactly, and the same classes of results."""
    expected, shape = tree_flatten(program("cpu"))
    seen, seen_shape = tree_flatten(program("mux"))
    assert seen_shape == shape
    for at, (x, y) in enumerate(zip(map(host, seen), map(host, expected), strict=True)):
        if isinstance(y, torch.Tensor):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5, equal_nan=True, msg=f"{at}: {x}")
        else:
            assert x == y, at


class _Counted(TorchDispatchMode):
    """Counts operators of the device below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands, _ = tree_flatten((args, kwargs))
        if any(isinstance(x, MuxTensor) for x in operands):
            self.counts[functions.overload_name(func)] += 1
        return func(*args, **(kwargs or {}))


def operators_of(program: Callable[[], object]) -> Counter[str]:
    """Number of uses of each operator of the device in the program."""
    with _Counted() as mode:
        program()
    return mode.counts
