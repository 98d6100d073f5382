"""One program for PyTorch and for GT: what it returns is the same, and what it raises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness.exact import is_as_exact

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
    """True where two results of `plain` are equal up to rounding."""
    if isinstance(expected, tuple | list):
        return (
            isinstance(got, tuple | list)
            and len(got) == len(expected)
            and all(close(x, y, tolerance) for x, y in zip(got, expected, strict=True))
        )
    if isinstance(expected, float) and isinstance(got, float):
        return got == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True)
    return bool(got == expected)


def as_exact(got: Any, expected: Any, exact: Any, tolerance: float) -> bool:
    """True where two results of `plain` are close, or ours is as near to float64's as torch's.

    Args:
        got: GT's result.
        expected: PyTorch's.
        exact: PyTorch's with float64 as the default dtype.
        tolerance: as in `close`.
    """
    if close(got, expected, tolerance):
        return True
    if isinstance(expected, tuple) and len(expected) == 4 and expected[0] == "gt.float32":
        numbers = [torch.tensor(x[2], dtype=torch.float32) for x in (got, expected)]
        return got[0] == expected[0] and is_as_exact(*numbers, torch.tensor(exact[2]).double())
    return (
        isinstance(expected, tuple | list)
        and isinstance(got, tuple | list)
        and len(got) == len(expected) == len(exact)
        and all(as_exact(*xs, tolerance) for xs in zip(got, expected, exact, strict=True))
    )


def in_double(program: Callable[[Any], Any]) -> Any:
    """The result of `program(torch)` where float64 is the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return plain(program(torch))
    finally:
        torch.set_default_dtype(before)


def check(
    program: Callable[[Any], Any], tolerance: float = 1e-6, *, by_double: bool = False
) -> None:
    """Runs `program(torch)` and `program(gt)`; results are equal, or errors are.

    Args:
        program: takes the module.
        tolerance: relative and absolute, of each number.
        by_double: whether float64 may say that a number beyond it is as near as PyTorch's; the
            program's dtypes then follow the default dtype.
    """
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
    same = close(got, expected, tolerance)
    if not same and by_double:
        same = as_exact(got, expected, in_double(program), tolerance)
    assert same, f"GT: {got}\nPyTorch: {expected}"


def _class_of(error: Exception) -> type[Exception]:
    kinds = (IndexError, NotImplementedError, TypeError, ValueError, RuntimeError, AttributeError)
    return next((kind for kind in kinds if isinstance(error, kind)), Exception)
