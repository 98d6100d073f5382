"""The repr of tensors: PyTorch's text, from only the elements that it shows, with the layout of a
cut one.

`text` and the functions below are pure, over numpy arrays; only `fetched` reads from the workers.
The edges of a tensor with more than `threshold` elements are selected on the workers, before the
read.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor, call
from gt.errors import InvalidUse
from gt.tensors.dtypes import NUMPY, complex_of, get_default_dtype

Array = npt.NDArray[np.generic]


@dataclasses.dataclass
class PrintOptions:
    """Settings for showing tensors, as `torch.set_printoptions` names them."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()
PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are shown: digits, number of elements above which to abridge,
    edges, columns.
    """
    chosen = dataclasses.asdict(PROFILES[profile]) if profile else {}
    options = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen |= {name: value for name, value in options.items() if value is not None}
    for name, value in chosen.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def tensor_repr(self: Tensor) -> str:
    """Values with dtype, requires_grad or grad_fn as in PyTorch, and the layout of a distributed
    tensor.
    """
    count = math.prod(self.shape)
    plain = type(self).__name__ in {"Tensor", "Parameter"}
    prefix = "tensor(" if plain else f"{type(self).__name__}("
    summarize = count > OPTIONS.threshold
    body = "[]" if count == 0 else text(fetched(self, summarize), self.shape, len(prefix), OPTIONS)
    suffixes = described(self, count) + spread(self)
    return with_suffixes(prefix + body, suffixes, len(prefix), OPTIONS.linewidth)


def described(x: Tensor, count: int) -> list[str]:
    """Dtype, gradient and other facts, which follow the values."""
    suffixes = []
    if (count == 0 and x.ndim != 1) or (count and not OPTIONS.edgeitems):
        suffixes.append(f"size={tuple(x.shape)}")
    default = get_default_dtype()
    implied = {default} if count == 0 else {default, complex_of(default), _core.int64, _core.bool}
    if not any(x.dtype == dtype for dtype in implied):
        suffixes.append(f"dtype={x.dtype!r}")
    try:
        name = x.grad_fn.name() if x.grad_fn is not None else None
    except InvalidUse:  # a view from `no_grad` whose memory has been written since
        name = "Invalid"
    if name is not None:
        suffixes.append(f"grad_fn=<{name}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def spread(x: Tensor) -> list[str]:
    """The layout of a cut tensor, asked after the read, which reduces partial values."""
    text = _core.layout(x)
    _, _, _, placements = _core.parse_layout(text, tuple(x.shape))
    whole = all(kind == "replicate" for kind, *_ in placements)
    return [] if whole else [f"layout={text}"]


def fetched(x: Tensor, summarize: bool) -> Array:
    """The elements to show, read from the workers."""
    shown = x.detach()
    if summarize:
        edge = OPTIONS.edgeitems
        for dim, n in enumerate(x.shape):
            if n > 2 * edge:
                first = call("slice", shown, dim=dim, start=0, end=edge, step=1)
                last = call("slice", shown, dim=dim, start=n - edge, end=n, step=1)
                shown = call("cat", first, last, dim=dim)
    return elements(_core.read_bytes(shown).tobytes(), shown.dtype, shown.shape)


def elements(data: bytes, dtype: _core.dtype, shape: Sequence[int]) -> Array:
    """Bytes as an array; bfloat16 as float32 with equal values."""
    if repr(dtype) not in NUMPY:
        wide = np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype=NUMPY[repr(dtype)]).reshape(shape)


class Formatter:
    """A common width and notation for all shown elements."""

    def __init__(self, data: Array, options: PrintOptions) -> None:
        self.precision = options.precision
        self.floating = data.dtype.kind == "f"
        self.whole, self.scientific, self.width = True, False, 1
        flat = data.reshape(-1)
        if not self.floating:
            self.width = max([1, *(len(str(value)) for value in flat.tolist())])
            return
        wide = flat.astype(np.float64)
        finite = wide[np.isfinite(wide) & (wide != 0)]
        if not finite.size:
            return
        low, high = float(np.abs(finite).min()), float(np.abs(finite).max())
        self.whole = bool((finite == np.ceil(finite)).all())
        chosen = options.sci_mode
        wide_range = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        self.scientific = wide_range if chosen is None else chosen
        point = int(self.whole and not self.scientific)  # integers get a "." at the end
        self.width = max(1, *(len(self.digits(value)) + point for value in finite.tolist()))

    def digits(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        return f"{value:.0f}" if self.whole else f"{value:.{self.precision}f}"

    def format(self, value: float | bool) -> str:
        """The element, right-justified."""
        if not self.floating:
            return str(value).rjust(self.width)
        point = "." if self.whole and not self.scientific and math.isfinite(value) else ""
        return (self.digits(value) + point).rjust(self.width)


class ComplexFormatter:
    """A formatter for the real parts, which are aligned, and one for the imaginary parts."""

    def __init__(self, data: Array, options: PrintOptions) -> None:
        self.real, self.imag = Formatter(data.real, options), Formatter(data.imag, options)
        self.width = self.real.width + self.imag.width + 1

    def format(self, value: complex) -> str:
        """The element; the sign of the imaginary part joins both parts."""
        imag = self.imag.format(value.imag).lstrip()
        sign = "" if imag.startswith("-") else "+"
        return f"{self.real.format(value.real)}{sign}{imag}j"


def formatter_of(data: Array, options: PrintOptions) -> Formatter | ComplexFormatter:
    """The formatter for elements of such data."""
    return (ComplexFormatter if data.dtype.kind == "c" else Formatter)(data, options)


def text(data: Array, shape: Sequence[int], indent: int, options: PrintOptions) -> str:
    """`data` in brackets; a dimension that is shorter than in `shape` was abridged."""
    return nested(data, tuple(shape), indent, formatter_of(data, options), options)


def nested(
    data: Array,
    shape: Sequence[int],
    indent: int,
    formatter: Formatter | ComplexFormatter,
    options: PrintOptions,
) -> str:
    """`text` with a given formatter."""
    if not shape:
        return formatter.format(data.item())
    abridged = data.shape[0] != shape[0]
    if len(shape) == 1:
        return row(data, abridged, indent, formatter, options)
    parts = [nested(part, shape[1:], indent + 1, formatter, options) for part in data]
    if abridged:
        parts.insert(options.edgeitems, "...")
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(parts) + "]"


def row(
    data: Array,
    abridged: bool,
    indent: int,
    formatter: Formatter | ComplexFormatter,
    options: PrintOptions,
) -> str:
    """One vector, on as many lines as it takes."""
    parts = [formatter.format(value) for value in data.tolist()]
    if abridged:
        parts.insert(options.edgeitems, " ..." if options.edgeitems else "...")
    per_line = max(1, (options.linewidth - indent) // (formatter.width + 2))
    lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def with_suffixes(body: str, suffixes: Sequence[str], indent: int, linewidth: int) -> str:
    """The values followed by the suffixes, which go on a new line if they do not fit."""
    parts, column = [body], len(body) - body.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > linewidth:
            parts.append(",\n" + " " * indent + suffix)
            column = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            column += len(suffix) + 2
    return "".join(parts) + ")"


def install() -> None:
    """Attaches repr to the tensor class."""
    for name in ("__repr__", "__str__"):
        setattr(Tensor, name, tensor_repr)


__all__ = ["set_printoptions"]
