"""One program for PyTorch and for GT: what it returns is the same, and what it raises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gt
import gt.utils.checkpoint


def plain(value: Any) -> Any:
    """Tensors as (dtype, shape, numbers, requires_grad); the rest as it is."""
    if isinstance(value, torch.Tensor | gt.Tensor):
        numbers = value.detach().double().tolist() if value.is_floating_point() else value.tolist()
        name = str(value.dtype).replace("torch.", "gt.")
        return (name, tuple(value.shape), numbers, value.requires_grad)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def close(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results of `plain` are equal but for rounding."""
    if isinstance(expected, tuple | list):
        return (
            isinstance(got, tuple | list)
            and len(got) == len(expected)
            and all(close(x, y, tolerance) for x, y in zip(got, expected, strict=True))
        )
    if isinstance(expected, float) and isinstance(got, float):
        return got == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True)
    return bool(got == expected)


def check(program: Callable[[Any], Any], tolerance: float = 1e-6) -> None:
    """Runs `program(torch)` and `program(gt)`; results are equal, or errors are."""
    expected, refusal = None, None
    try:
        expected = plain(program(torch))
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises
        refusal = error
    if refusal is not None:
        with pytest.raises(_class_of(refusal)) as raised:
            program(gt)
        assert str(raised.value).startswith(str(refusal).split("\n")[0][:110])
        return
    got = plain(program(gt))
    assert close(got, expected, tolerance), f"GT: {got}\nPyTorch: {expected}"


def _class_of(error: Exception) -> type[Exception]:
    kinds = (IndexError, NotImplementedError, TypeError, ValueError, RuntimeError, AttributeError)
    return next((kind for kind in kinds if isinstance(error, kind)), Exception)
