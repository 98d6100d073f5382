"""Operators whose results share their operand's memory: GT's views, which alias as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gt import _core
from gt._core import Tensor
from gt.torch import functions, operands
from gt.torch.fast import offers
from gt.torch.functions import Run
from gt.torch.operands import Named
from gt.torch.tensor import of_value


def _slice(
    self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    dim = dim + self.ndim if dim < 0 else dim
    index = (slice(None),) * dim + (slice(start, end, step),)
    view: Tensor = self[index]
    return view if view is not self else self.detach()


def _reshape_alias(self: Tensor, size: list[int], stride: list[int]) -> Tensor:
    return self.as_strided(size, stride, self.storage_offset())


def _bits(self: Tensor, dtype: _core.dtype) -> Tensor:
    """The bits as another dtype, in new memory that cannot be written."""
    if dtype == self.dtype:
        return self.detach()
    return _core.read_only(
        self.view(dtype), "a view of another dtype has memory of its own on the device mux"
    )


def _split(self: Tensor, split_size: int | list[int], dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(self.split(split_size, dim))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_reshape_alias": _reshape_alias,
    "alias": Tensor.detach,
    "detach": Tensor.detach,
    "lift_fresh": Tensor.detach,
    "slice.Tensor": _slice,
    "split.Tensor": _split,
    "split_with_sizes": _split,
    "view.dtype": _bits,
    "_conj": Tensor.conj,
}


def found(operator: Any) -> Run | None:  # noqa: ANN401 - PyTorch has no public type of it
    """The function that runs a view; None if GT has none."""
    name = functions.overload_name(operator)
    function = FUNCTIONS.get(name)
    if function is None:
        title = name.partition(".")[0]
        function = functions.public_of(title, operator._schema)  # noqa: SLF001
    if function is None:
        return None
    offers.offer(operator, offers.Use.VIEW, function)

    def run(args: Sequence[object], kwargs: Named) -> object:
        # A view within inference_mode has its base's mode, and PyTorch counts versions of both.
        if torch.is_inference_mode_enabled() and not args[0].is_inference():  # type: ignore[attr-defined]
            with torch.inference_mode(mode=False):
                return run(args, kwargs)
        values = [operands.operand(x) for x in args]
        result = function(*values, **operands.words(kwargs)) if kwargs else function(*values)
        if type(result) is Tensor and result is not values[0]:
            return of_value(result)
        if result is values[0]:
            assert isinstance(result, Tensor)
            return of_value(result.detach())
        return operands.results(result)

    return run
