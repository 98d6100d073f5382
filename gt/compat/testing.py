"""`gt.testing.assert_close`: a check that two values are equal within a tolerance."""

# ruff: noqa: ARG001 - PyTorch's arguments that mean nothing here

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor
from gt.compat import misses
from gt.errors import InvalidType, InvalidValue

__all__ = ["assert_close"]

Values = npt.NDArray[Any]
Message = str | Callable[[str], str] | None
# (rtol, atol) from PyTorch's documentation of assert_close; 0 for integers.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


@dataclass(frozen=True, kw_only=True)
class _Rules:
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_dtype: bool
    check_stride: bool

    def tolerances(self, *dtypes: str) -> tuple[float, float]:
        """rtol and atol: the given ones, or the larger ones for the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        own = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in own), max(atol for _, atol in own)


@dataclass(frozen=True)
class _Difference(Exception):
    text: str
    path: tuple[object, ...] = ()
    final: bool = False  # True for different structures: the caller's `msg` does not apply


def assert_close(
    actual: object,
    expected: object,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raises unless `|actual - expected| <= atol + rtol * |expected|` for each element.

    Args:
        actual: a tensor, an array, a number, None, or sequences and mappings of these.
        expected: values of the same kind.
        allow_subclasses: accepted without effect, like `check_device` and `check_layout`.
        rtol: the relative tolerance; with `atol`, or both by dtype (float32: 1.3e-6 and 1e-5).
        atol: the absolute tolerance.
        equal_nan: whether two nan are equal.
        check_dtype: whether dtypes must be equal.
        check_stride: whether strides must be equal.
        msg: the error's text in place of the default one, or a function of that.

    Raises:
        AssertionError: they differ; the text has the number of elements and the greatest
            difference.
        TypeError: the values have different or unknown kinds.
        ValueError: only one of the tolerances is given.
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise InvalidValue(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    rules = _Rules(
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=check_dtype,
        check_stride=check_stride,
    )
    try:
        _compare(actual, expected, rules)
    except _Difference as difference:
        text = difference.text
        if difference.path:
            place = "".join(f"[{at!r}]" for at in difference.path)
            text += f"\n\nThe failure occurred for item {place}"
        if difference.final:
            raise AssertionError(text) from None
        raise AssertionError(msg(text) if callable(msg) else msg or text) from None


def _compare(actual: Any, expected: Any, rules: _Rules) -> None:  # noqa: ANN401 - of any kind
    if _are(Mapping, actual, expected):
        _same_keys(actual, expected)
        for key in sorted(actual, key=str):
            _compare_item(key, actual[key], expected[key], rules)
    elif _are(Sequence, actual, expected) and not _are(str, actual, expected):
        if len(actual) != len(expected):
            raise _Difference(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}",
                final=True,
            )
        for at, pair in enumerate(zip(actual, expected, strict=True)):
            _compare_item(at, *pair, rules)
    elif actual is None or expected is None:
        if actual is not expected:
            raise _Difference(f"None mismatch: {actual} is not {expected}")
    else:
        _compare_values(actual, expected, rules)


def _compare_values(actual: Any, expected: Any, rules: _Rules) -> None:  # noqa: ANN401 - of any kind
    if _are((bool, np.bool_), actual, expected):
        if actual != expected:
            raise _Difference(f"Booleans mismatch: {actual} is not {expected}")
    elif _are((int, float, complex, np.number), actual, expected):
        _compare_numbers(actual, expected, rules)
    elif _are(Tensor, actual, expected) or _are(np.ndarray, actual, expected):
        _compare_tensors(actual, expected, rules)
    else:
        raise InvalidType(
            "No comparison pair was able to handle inputs of type "
            f"{type(actual)} and {type(expected)}."
        )


def _are(kind: type | tuple[type, ...], *values: object) -> bool:
    return all(isinstance(value, kind) for value in values)


def _compare_item(key: object, actual: object, expected: object, rules: _Rules) -> None:
    try:
        _compare(actual, expected, rules)
    except _Difference as difference:
        raise _Difference(difference.text, (key, *difference.path), difference.final) from None


def _same_keys(actual: Mapping[object, object], expected: Mapping[object, object]) -> None:
    missing = sorted(expected.keys() - actual.keys(), key=str)
    additional = sorted(actual.keys() - expected.keys(), key=str)
    if missing or additional:
        raise _Difference(
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {missing}\n"
            f"Additional keys in the actual mapping: {additional}",
            final=True,
        )


def _compare_numbers(actual: Any, expected: Any, rules: _Rules) -> None:  # noqa: ANN401 - numbers
    if rules.check_dtype and type(actual) is not type(expected):
        raise _Difference(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    kinds = (
        "complex128" if isinstance(value, complex) else "float64" for value in (actual, expected)
    )
    whole = _are((int, np.integer), actual, expected)
    rtol, atol = (rules.rtol or 0, rules.atol or 0) if whole else rules.tolerances(*kinds)
    difference = abs(actual - expected)
    both_nan = rules.equal_nan and actual != actual and expected != expected  # noqa: PLR0124 - nan
    if actual == expected or both_nan or difference <= atol + rtol * abs(expected) < np.inf:
        return
    relative = difference / abs(expected) if expected else float("inf")
    _fail(
        "Scalars",
        f"Expected {expected} but got {actual}.\n",
        [("Absolute difference", difference, atol), ("Relative difference", relative, rtol)],
    )


def _compare_tensors(actual: Tensor | Values, expected: Tensor | Values, rules: _Rules) -> None:
    _same("shape", actual.shape, expected.shape)
    if rules.check_dtype:
        _same("dtype", actual.dtype, expected.dtype)
    if rules.check_stride and isinstance(actual, Tensor) and isinstance(expected, Tensor):
        _same("stride()", actual.stride(), expected.stride())
    rtol, atol = rules.tolerances(*(str(x.dtype).rpartition(".")[2] for x in (actual, expected)))
    ours, theirs = np.atleast_1d(_values(actual)), np.atleast_1d(_values(expected))
    with np.errstate(all="ignore"):
        close = np.isclose(ours, theirs, rtol, atol, equal_nan=rules.equal_nan)
        if close.all():
            return
        difference = np.abs(ours - theirs)
        whole = difference.dtype.kind == "i"
        relative = np.divide(difference, np.abs(theirs), dtype=np.float32 if whole else None)
    difference[close], relative[close] = 0, 0
    count, scalar = int((~close).sum()), not actual.shape
    if scalar:
        head = f"Expected {theirs[0].item()} but got {ours[0].item()}.\n"
        kinds = [("Absolute difference", difference[0].item(), atol)]
        kinds.append(("Relative difference", relative[0].item(), rtol))
        _fail("Scalars", head, kinds)
    head = f"Mismatched elements: {count} / {close.size} ({count / close.size:.1%})\n"
    kinds = []
    for kind, values, tolerance in (("absolute", difference, atol), ("relative", relative, rtol)):
        at = tuple(int(i) for i in np.unravel_index(np.argmax(values), values.shape))
        title = f"Greatest {kind} difference"
        kinds.append((title, f"{values[at].item()} at index {at}", tolerance))
    _fail("Tensor-likes", head, kinds)


def _same(attribute: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise _Difference(
            f"The values for attribute {attribute!r} do not match: {actual} != {expected}."
        )


def _values(x: Tensor | Values) -> Values:
    """The values in a dtype for differences: bool as int64, narrow floats as float32."""
    if isinstance(x, Tensor):
        x = x.detach()
        x = (x.float() if x.dtype in (_core.bfloat16, _core.float16) else x).numpy()
    return x.astype(np.int64) if x.dtype.kind in "bui" else x


def _fail(kind: str, head: str, differences: list[tuple[str, object, float]]) -> NoReturn:
    equal = not any(tolerance for *_, tolerance in differences)
    lines = [
        f"{title}: {value}" + ("" if equal else f" (up to {tolerance} allowed)")
        for title, value, tolerance in differences
    ]
    state = "equal" if equal else "close"
    raise _Difference(f"{kind} are not {state}!\n\n{head}" + "\n".join(lines))


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
