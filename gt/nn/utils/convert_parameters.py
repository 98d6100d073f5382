"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import gt
from gt._core import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements as one vector."""
    return gt.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of `vec` into the parameters."""
    start = 0
    for param in parameters:
        count = param.numel()
        param.data = vec[start : start + count].reshape(param.shape)
        start += count
