"""Kernels take the calls that `kernel_choice.txt` lists by engine, and no others.

`python tests/kernels/test_kernel_choice.py` writes the list anew. A kernel that is asked elsewhere,
or by another condition, changes a line here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture

from gt import _kernels  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.native.kernels import NATIVE  # noqa: E402
from gt.worker.pytorch import kernels as torch_kernels  # noqa: E402
from gt.worker.pytorch.elementwise import number_first  # noqa: E402

# Variances of one number, and means of none: what they are is judged elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

LIST = Path(__file__).with_name("kernel_choice.txt")
# A name for each, the operands with lists last, and the attributes.
Case = tuple[str, list[object], list[object]]
# Runs a row; what it returns is not looked at.
Run = Callable[[str, list[object], list[object]], object]


def arrays() -> dict[str, np.ndarray]:
    """Operands by name: few and many elements, dtypes and strides that kernels tell apart."""
    random = np.random.default_rng(7)

    def drawn(*size: int) -> np.ndarray:
        return random.standard_normal(size).astype(np.float32)

    forms = {
        "few": drawn(3, 8), "limit": drawn(8, 256), "past": drawn(9, 256), "many": drawn(64, 160),
        "transposed": drawn(160, 64).T, "row": drawn(160), "column": drawn(64, 1), "one": drawn(1),
        "scalar": drawn(1).reshape(()), "empty": drawn(0, 8), "step": drawn(64, 320)[:, ::2],
        "volume": drawn(8, 16, 80), "wide": drawn(4, 40_000),
    }  # fmt: skip
    for name in ("few", "many", "transposed", "scalar", "empty"):
        forms[f"{name}.float64"] = forms[name].astype(np.float64)
        forms[f"{name}.int64"] = np.rint(forms[name]).astype(np.int64)
    for name in ("few", "many", "row", "column", "transposed", "wide"):
        forms[f"{name}.bool"] = forms[name] > 0
    forms["many.int32"] = forms["many.int64"].astype(np.int32)
    forms["many.float16"] = forms["many"].astype(np.float16)
    return forms


FORMS = arrays()
SOLE = [
    "few",
    "limit",
    "past",
    "many",
    "transposed",
    "step",
    "scalar",
    "one",
    "empty",
    "volume",
    "wide",
]
OTHERS = [
    "few.float64",
    "many.float64",
    "transposed.float64",
    "many.int64",
    "many.int32",
    "many.bool",
]
PAIRS = [
    *((one, one) for one in ("few", "limit", "past", "many", "transposed", "wide", "few.float64")),
    *((one, one) for one in ("many.float64", "many.int64", "many.int32", "many.bool", "empty")),
    ("many", "row"), ("many", "column"), ("many", "scalar"), ("scalar", "many"), ("row", "many"),
    ("many", "many.bool"), ("many.bool", "many"), ("many", "many.float64"), ("many", "transposed"),
    ("few", "scalar"), ("few", 2.5), (3, "few"), ("many", 0.5), (2, "many"), ("many.int64", 3),
    ("many.int64", 2.5), ("many.int32", 2**40), ("many.float64", 2.0), ("wide", 1.5),
    ("wide.bool", "wide"), ("many.float16", 2.0),
]  # fmt: skip
CHOICES = [
    *itertools.product(["many.bool"], ["many", "row", "scalar", 0.5], ["many", "scalar", 2]),
    *((f"{one}.bool", one, 1.0) for one in ("few", "transposed", "wide")),
    *(("many.bool", f"many.{of}", f"many.{of}") for of in ("float64", "int64", "int32", "float16")),
    ("row.bool", "many", "many"), ("column.bool", "many", "many"), ("many.bool", "many.int64", 5),
    ("many.bool", "many.int64", 2.5), ("many.bool", "many.bool", True), ("many.bool", 1.0, 2.0),
    ("many.bool", "many", "many.float64"), ("many.bool", "transposed", "many"),
    ("many.bool", "many", 1e300), ("many.bool", 0.0, "many.float64"),
]  # fmt: skip
UNARY = [
    "neg",
    "abs",
    "sqrt",
    "square",
    "reciprocal",
    "rsqrt",
    "relu",
    "sign",
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "silu",
    "isnan",
    "isinf",
    "isfinite",
    "floor",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "maximum",
    "minimum",
    "pow",
]
BACKWARD = ["tanh_backward", "sigmoid_backward", "relu_backward", "silu_backward"]
DIMS: list[tuple[int, ...] | None] = [None, (0,), (1,), (-1,), (0, 1)]


def operand(name: object) -> object:
    return FORMS[name] if isinstance(name, str) else name


def elementwise() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for row, name in itertools.product(UNARY, SOLE + OTHERS):
        if row not in ("isnan", "isinf", "isfinite") or name != "empty":
            yield row, [name], []
    for row, pair in itertools.product(BINARY, PAIRS):
        yield row, pair, []
    for exponent in (2, 0.5, -0.5, -1, 3, -2, 2.5):
        yield "pow", ["many", exponent], []
        yield "pow", ["few", exponent], []
    alike = [
        ("few",) * 2,
        ("many",) * 2,
        ("transposed",) * 2,
        ("many", "transposed"),
        ("many.float64",) * 2,
    ]
    for row, pair in itertools.product(BACKWARD, alike):
        yield row, pair, []


def activations() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for name in SOLE:
        for row in ("gelu", "gelu_backward"):
            count = 1 if row == "gelu" else 2
            yield row, [name] * count, ["none"]
            yield row, [name] * count, ["tanh"]
        yield "softplus", [name], [1.0, 20.0]
        yield "leaky_relu", [name], [0.1]
        yield "elu", [name], [1.0]
        yield "softplus_backward", [name, name], [1.0, 20.0]
        yield "leaky_relu_backward", [name, name], [0.1]
        yield "elu_backward", [name, name], [1.0]
        yield "clamp", [name, -1.0, 1.0], []
        yield "clamp", [name, -1.0, None], []


def choices() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for condition, lhs, rhs in CHOICES:
        yield "where", [condition, lhs, rhs], []
        if isinstance(rhs, str) and not isinstance(lhs, str):
            yield "masked_fill", [rhs, condition, lhs], []
    for name, dtype in itertools.product(SOLE + OTHERS, ("float32", "float64", "int64", "bool")):
        yield "cast", [name], [dtype]


def reductions() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for name, dim, keepdim in itertools.product(SOLE + OTHERS, DIMS, (False, True)):
        shape = FORMS[name].shape
        if dim is not None and len(shape) < 2:
            continue
        for row in ("sum", "mean"):
            if row == "sum" or FORMS[name].dtype.kind == "f":
                yield row, [name], [dim, keepdim, None]
        if FORMS[name].size:
            for row in ("amax", "amin", "all", "any"):
                yield row, [name], [dim, keepdim]
        if FORMS[name].dtype.kind == "f" and FORMS[name].size:
            yield "var", [name], [dim, 1, keepdim]


def along_last() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for row in ("softmax", "log_softmax"):
        for name in SOLE + OTHERS[:3]:
            for dim in (-1, 0, 1):
                if dim < max(FORMS[name].ndim, 1):
                    yield row, [name], [dim, None]
                    yield f"{row}_backward", [name, name], [dim]
        yield row, ["many"], [1, "float64"]
        yield f"{row}_backward", ["transposed", "many"], [1]
        yield f"{row}_backward", ["many", "transposed"], [1]
    for name in ("few", "many", "transposed", "volume", "many.float64", "empty"):
        size = FORMS[name].shape[-1:]
        dtype = FORMS[name].dtype
        for weight in (None, np.ones(size, dtype)):
            yield "layer_norm", [name, weight, weight], [size, 1e-5]
            rows = np.ones((*FORMS[name].shape[:-1], 1), dtype)
            yield "layer_norm_backward", [name, name, rows, rows, weight], [size]
            yield "rms_norm", [name, weight], [size, 1e-5]


def losses() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for name, reduction in itertools.product(
        ("few", "many", "transposed", "step", "many.float64"), ("none", "mean", "sum")
    ):
        x = FORMS[name]
        target = np.arange(len(x)) % x.shape[1]
        grad = np.ones(len(x) if reduction == "none" else (), x.dtype)
        total = np.array(len(x), x.dtype)
        for weight in (None, np.ones(x.shape[1], x.dtype)):
            yield "cross_entropy", [name, target, weight], [reduction, -100, 0.0]
            yield (
                "cross_entropy_backward",
                [grad, name, target, weight, total],
                [reduction, -100, 0.0],
            )
        yield "cross_entropy", [name, target, None], [reduction, -100, 0.1]
        yield "nll_loss", [name, target, None], [reduction, -100]
        yield "mse_loss", [name, name], [reduction]
        grad = x if reduction == "none" else np.ones((), x.dtype)
        yield "mse_loss_backward", [grad, name, name], [reduction]
    yield "mse_loss", ["many", "row"], ["mean"]
    yield "cross_entropy", ["empty", np.zeros(0, np.int64), None], ["sum", -100, 0.0]


def products() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for rows, depth, columns in ((4, 8, 4), (64, 64, 64), (65, 70, 80), (1, 512, 600)):
        left = np.full((rows, depth), 0.5, np.float32)
        right = np.full((depth, columns), 0.25, np.float32)
        yield "matmul", [left, right], []
        yield "matmul", [left.astype(np.float64), right.astype(np.float64)], []
        yield "linear", [left, right.T, None], []
        yield "linear", [left, np.ascontiguousarray(right.T), right[0]], []
        yield "linear", [left, np.ascontiguousarray(right.T), right[0].repeat(2)[::2]], []


def orders() -> Iterator[tuple[str, Sequence[object], list[object]]]:
    for name in ("few", "many", "transposed", "volume", "wide", "many.int64"):
        yield "sort", [name], [-1, False, True]
        yield "sort", [name], [-1, True, False]
        yield "cumsum", [name], [-1, None]
        yield "argmax", [name], [(1,), False]
        yield "topk", [name], [5, -1, True, True]


def cases() -> Iterator[Case]:
    for row, names, attributes in itertools.chain(
        elementwise(),
        activations(),
        choices(),
        reductions(),
        along_last(),
        losses(),
        products(),
        orders(),
    ):
        yield row, list(names), attributes


def label(case: Case) -> str:
    row, names, attributes = case

    def said(one: object) -> str:
        if isinstance(one, np.ndarray):
            return f"{one.dtype}{list(one.shape)}".replace(" ", "")
        return str(one).replace(" ", "")

    return " ".join([row, *map(said, names), "|", *map(said, attributes)])


def in_torch(one: object) -> object:
    return torch.from_numpy(one) if isinstance(one, np.ndarray) else one


def with_dtypes(attributes: list[object]) -> list[object]:
    return [getattr(torch, x) if x in ("float32", "float64", "int64", "bool") else x
            for x in attributes]  # fmt: skip


def python_engine(row: str, operands: list[object], attributes: list[object]) -> object:
    """torch, called from Python."""
    given = [in_torch(one) for one in operands]
    is_number = row in number_first() and not isinstance(given[0], torch.Tensor)
    table = number_first() if is_number else torch_kernels.TORCH
    return table[row](*given, *with_dtypes(attributes))


def aten_engine(trial: Trial) -> Run:
    """torch, called by the helper."""
    return lambda row, operands, attributes: trial.run(
        row, [in_torch(one) for one in operands], with_dtypes(attributes)
    )


def native_engine(row: str, operands: list[object], attributes: list[object]) -> object:
    """numpy."""
    return NATIVE[row](*operands, *attributes)


def lines(run: Run) -> Iterator[str]:
    """Calls of which a kernel has computed at least a part."""
    with torch.inference_mode(), np.errstate(all="ignore"):
        for case in cases():
            row, names, attributes = case
            before = _kernels.calls()
            try:
                run(row, [operand(one) for one in names], attributes)
            except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError):
                continue  # not for this engine; what is refused is judged elsewhere
            if _kernels.calls() != before:
                yield label(case)


def grouped(run: Run, name: str) -> Iterator[str]:
    """Calls by row, one line for each."""
    by_row: dict[str, list[str]] = {}
    for line in lines(run):
        row, _, rest = line.partition(" ")
        by_row.setdefault(row, []).append(rest)
    return (f"{name} {row}: {'; '.join(calls)}" for row, calls in by_row.items())


def check(run: Run, name: str) -> None:
    expected = [line for line in LIST.read_text().splitlines() if line.startswith(f"{name} ")]
    assert list(grouped(run, name)) == expected


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GT_KERNELS", raising=False)
    check(python_engine, "python")


def test_aten(aten_helper: Trial) -> None:  # noqa: F811
    check(aten_engine(aten_helper), "aten")


def test_native() -> None:
    check(native_engine, "native")


if __name__ == "__main__":
    from gt.worker.aten import start
    from gt.worker.aten.binding import Binder

    helper = start.ready()
    trial = Trial(helper, Binder(helper, torch.device("cpu")))
    engines: dict[str, Run] = {
        "python": python_engine, "aten": aten_engine(trial), "native": native_engine,
    }  # fmt: skip
    LIST.write_text(
        "".join(f"{one}\n" for name, run in engines.items() for one in grouped(run, name))
    )
