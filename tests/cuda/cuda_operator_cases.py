"""Rows of a worker's table that GT's own CUDA kernels run, beside PyTorch's kernels of the same
rows: on a GPU (tests/gpu), or under the emulator (test_cuda_operators.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker.cuda.operators import CudaOperators
from gt.worker.own_calls import kernels_run
from gt.worker.pytorch import kernels

HALVES = (torch.bfloat16, torch.float16)
ROW_DTYPES = (torch.float32, *HALVES)
# Tolerance of results, relative to the result and to its largest element.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}


class Tables:
    """Kernels by row, with GT's own before PyTorch's and without."""

    def __init__(self, own: CudaOperators) -> None:
        self.own = own
        self.device = own.kernels.device
        self.ours = kernels.table(self.device, own)
        self.theirs = kernels.table(self.device)

    def drawn(self, *size: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
        numbers = torch.randn(size, generator=torch.Generator().manual_seed(seed))
        return numbers.to(self.device, dtype)

    def run(self, row: str, *arguments: object) -> tuple[Tensor, ...]:
        """By a kernel of GT's own, and by one alone."""
        before = kernels_run()
        with torch.inference_mode():
            made = _listed(self.ours[row](*arguments))
        assert kernels_run() == before + 1, f"{row} by PyTorch"
        return made

    def check(self, row: str, *arguments: object) -> tuple[Tensor, ...]:
        """Compare with PyTorch's kernel: dtypes, shapes, strides, and values up to rounding."""
        made = self.run(row, *arguments)
        with torch.inference_mode():
            expected = _listed(self.theirs[row](*arguments))
        agree(made, expected)
        return made


def _listed(results: object) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def agree(made: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.stride() == theirs.stride()
        close(ours, theirs)


def close(ours: Tensor, theirs: Tensor, tolerance: float | None = None) -> None:
    tolerance = TOLERANCES[theirs.dtype] if tolerance is None else tolerance
    finite = theirs[theirs.isfinite()].abs()
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
    bounds = {"rtol": tolerance, "atol": tolerance * scale, "equal_nan": True}
    torch.testing.assert_close(ours.double(), theirs.double(), **bounds)


# ---- products: the operands of torch.matmul, drawn and then viewed ----

PRODUCTS = {
    "matrices": ((40, 72), (72, 24), None),
    "a transposed weight": ((40, 72), (24, 72), lambda a, b: (a, b.mT)),
    "the weight's gradient": ((72, 40), (72, 24), lambda a, b: (a.mT, b)),
    "few rows": ((3, 16), (40, 16), lambda a, b: (a, b.mT)),
    "a batch by a matrix": ((2, 3, 5, 16), (16, 8), None),
    "a transposed batch by a matrix": ((3, 2, 16), (16, 8), lambda a, b: (a.transpose(0, 1), b)),
    "batches": ((3, 8, 16), (3, 16, 8), None),
    "batches that are broadcast": ((3, 1, 8, 16), (2, 16, 8), None),
    "a matrix by a batch": ((8, 16), (2, 16, 8), None),
    "transposed batches": ((3, 16, 8), (3, 16, 24), lambda a, b: (a.mT, b)),
    "columns of another matrix": ((40, 72), (72, 64), lambda a, b: (a[:, 8:48], b[8:48, 16:32])),
    "every other column, which PyTorch copies": (
        (8, 32),
        (16, 8),
        lambda a, b: (a[:, ::2], b),
    ),
    "one number for all, as a sum's gradient": (
        (1, 1),
        (16, 8),
        lambda a, b: (a.expand(3, 4, 16), b),
    ),
    "no rows": ((0, 16), (16, 8), None),
    "no depth": ((8, 0), (0, 8), None),
    "no batches": ((0, 8, 16), (0, 16, 8), None),
}


def check_product(tables: Tables, name: str, dtype: torch.dtype) -> None:
    left, right, view = PRODUCTS[name]
    operands = tables.drawn(*left, dtype=dtype), tables.drawn(*right, dtype=dtype, seed=2)
    tables.check("matmul", *(operands if view is None else view(*operands)))


LINEARS = {
    "rows": (lambda x: x, (40, 16)),
    "rows of a batch": (lambda x: x, (2, 5, 16)),
    "rows of a transposed batch": (lambda x: x.transpose(0, 1), (5, 2, 16)),
    "a row": (lambda x: x, (1, 16)),
}


def check_linear(tables: Tables, name: str, dtype: torch.dtype) -> None:
    view, size = LINEARS[name]
    x, weight = view(tables.drawn(*size, dtype=dtype)), tables.drawn(24, 16, dtype=dtype, seed=2)
    tables.check("linear", x, weight, None)
    tables.check("linear", x, weight, tables.drawn(24, dtype=dtype, seed=3))


# ---- attention: b, heads, t, s, head size, is_causal, dropout_p ----

ATTENTIONS = [
    (1, 2, 20, 36, 64, False, 0.0),
    (2, 1, 33, 33, 40, True, 0.0),
    (1, 1, 18, 65, 128, False, 0.25),
]


def check_attention(
    tables: Tables, case: tuple[int, int, int, int, int, bool, float], dtype: torch.dtype
) -> None:
    """Forward and backward as the generic rows run them, of operands that a projection leaves."""
    b, h, t, s, k, is_causal, p = case
    query, key, value, grad = (
        tables.drawn(b, rows, h, k, dtype=dtype, seed=seed).transpose(1, 2)
        for seed, rows in enumerate((t, s, s, t))
    )
    _check_attention(tables, (query, key, value), grad, is_causal=is_causal, p=p)


def check_unaligned_attention(tables: Tables, dtype: torch.dtype) -> None:
    """Operands whose rows no kernel copies by 16 bytes are copied first; then saved otherwise."""
    query, key, value, grad = (
        tables.drawn(1, 2, 9, 17, dtype=dtype, seed=seed)[..., 1:] for seed in range(4)
    )
    _check_attention(tables, (query, key, value), grad, is_causal=False, p=0.0)


def _check_attention(
    tables: Tables,
    operands: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    *,
    is_causal: bool,
    p: float,
) -> None:
    query, key, _ = operands
    b, h, t, k = query.shape
    drawn = torch.randint(0, 2**63 - 1, (b, h, t), generator=torch.Generator().manual_seed(9))
    given = (*operands, drawn.to(tables.device)) if p else operands
    text = f"_0, _1, _2, None, {'_3' if p else None}, {is_causal}, {p}, {k**-0.5}"
    half, wide = kernels.DTYPES.index(query.dtype), kernels.DTYPES.index(torch.float32)
    stated = [half, 4, b, h, t, k, wide, 3, b, h, t]
    rest = (text, [], stated, True, torch.float32)
    output, logsumexp = tables.run("aten", list(given), "attention", *rest)
    assert output.is_contiguous()
    with torch.inference_mode():
        expected, _ = tables.theirs["aten"](list(given), "attention", *rest)
    close(output, expected)
    scores = (query.double() @ key.double().mT) * k**-0.5
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=tables.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    close(logsumexp, scores.logsumexp(-1), 1e-5)
    _check_attention_backward(tables, given, grad, (output, logsumexp), text)


def _check_attention_backward(
    tables: Tables,
    given: tuple[Tensor, ...],
    grad: Tensor,
    saved: tuple[Tensor, Tensor],
    text: str,
) -> None:
    query, key, _, *_ = given
    half = kernels.DTYPES.index(query.dtype)
    stated = [number for x in (query, key, key) for number in (half, 4, *x.shape)]
    arguments = ("attention", text, [0, 1, 2, -1], stated, False, torch.float32)
    made = tables.run("aten_vjp", [*given, grad, None, *saved], *arguments)
    with torch.inference_mode():
        expected = tables.theirs["aten_vjp"]([*given, grad, None, *saved], *arguments)
    for ours, theirs in zip(made, expected, strict=True):
        close(ours, theirs)


# ---- rows ----

# Shape, what is normalized over, whether there are a weight and a bias.
NORMS = [
    ((3, 40), 1, True, True),
    ((2, 3, 33), 1, True, False),
    ((4, 5, 6), 2, True, True),
    ((5, 8), 1, False, False),
    ((0, 8), 1, True, True),
]


def check_layer_norm(
    tables: Tables, case: tuple[tuple[int, ...], int, bool, bool], dtype: torch.dtype
) -> None:
    """On the host PyTorch keeps mean and rstd in the operands' dtype; on a GPU in float32."""
    shape, count, has_weight, has_bias = case
    size = shape[-count:]
    x, grad = tables.drawn(*shape, dtype=dtype), tables.drawn(*shape, dtype=dtype, seed=2)
    weight = tables.drawn(*size, dtype=dtype, seed=3) if has_weight else None
    bias = tables.drawn(*size, dtype=dtype, seed=4) if has_bias else None
    out, mean, rstd = tables.run("layer_norm", x, weight, bias, size, 1e-5)
    assert mean.dtype == rstd.dtype == torch.float32
    with torch.inference_mode():
        expected = tables.theirs["layer_norm"](x, weight, bias, size, 1e-5)
    statistics = expected[1].dtype
    agree((out, mean.to(statistics), rstd.to(statistics)), expected)
    made = tables.run("layer_norm_backward", grad, x, mean, rstd, weight, size)
    with torch.inference_mode():
        saved = expected[1:]
        expected = tables.theirs["layer_norm_backward"](grad, x, *saved, weight, size)
    agree(made, expected)


def check_transposed_layer_norm(tables: Tables) -> None:
    x = tables.drawn(6, 4, 8, dtype=torch.float32).transpose(0, 1)
    weight = tables.drawn(16, dtype=torch.float32)[::2]
    _, mean, rstd = tables.check("layer_norm", x, weight, None, (8,), 1e-5)
    grad = tables.drawn(4, 6, 8, dtype=torch.float32, seed=2)
    made = tables.run("layer_norm_backward", grad, x, mean, rstd, weight, (8,))
    expected = tables.theirs["layer_norm_backward"](grad, x, mean, rstd, weight, (8,))
    for ours, theirs in zip(made, expected, strict=True):
        close(ours, theirs)


def check_rms_norm(
    tables: Tables, case: tuple[tuple[int, ...], int, bool, bool], dtype: torch.dtype
) -> None:
    shape, count, has_weight, _ = case
    size = shape[-count:]
    x, grad = tables.drawn(*shape, dtype=dtype), tables.drawn(*shape, dtype=dtype, seed=2)
    weight = tables.drawn(*size, dtype=dtype, seed=3) if has_weight else None
    _, rstd = tables.check("rms_norm", x, weight, size, 1e-5)
    assert rstd.dtype == torch.float32
    tables.check("rms_norm_backward", grad, x, rstd, weight, size)


def check_transposed_rms_norm(tables: Tables) -> None:
    x = tables.drawn(6, 4, 8, dtype=torch.float32).transpose(0, 1)
    weight = tables.drawn(16, dtype=torch.float32)[::2]
    _, rstd = tables.check("rms_norm", x, weight, (8,), 1e-5)
    grad = tables.drawn(6, 4, 8, dtype=torch.float32, seed=2).transpose(0, 1)
    tables.check("rms_norm_backward", grad, x, rstd, weight, (8,))


def check_cross_entropy(
    tables: Tables, reduction: str, ignore_index: int, dtype: torch.dtype
) -> None:
    """Rows are left out by a negative index, or by one that is a class."""
    scores = tables.drawn(9, 35, dtype=dtype)
    target = torch.arange(9, device=tables.device) * 4
    target[4] = ignore_index
    options = (reduction, ignore_index, 0.0)
    loss, log_probs, total = tables.check("cross_entropy", scores, target, None, *options)
    grad = tables.drawn(*loss.shape, dtype=dtype, seed=2)
    tables.check("cross_entropy_backward", grad, log_probs, target, None, total, *options)
    shards = (loss, log_probs, total)
    assert all(torch.isfinite(one).all() for one in shards)


def check_losses_of_nothing(tables: Tables, dtype: torch.dtype) -> None:
    """No rows, and rows that are all left out."""
    for rows in (0, 3):
        scores = tables.drawn(rows, 7, dtype=dtype)
        target = torch.full((rows,), -100, device=tables.device)
        for reduction in ("mean", "sum", "none"):
            options = (reduction, -100, 0.0)
            made = tables.check("cross_entropy", scores, target, None, *options)
            operands = (torch.ones_like(made[0]), made[1], target, None, made[2], *options)
            tables.check("cross_entropy_backward", *operands)


# ---- updates ----


def check_adamw(tables: Tables, *, decoupled: bool) -> None:
    """A group over its operands in one call; then a step beside its operands."""
    weight_decay = 0.1 if decoupled else 0.0
    numbers = (0.01, 0.9, 0.95, 1e-8, weight_decay, 3, decoupled, False)
    ours, theirs = _group(tables), _group(tables)
    updates = kernels.torch_updates.Updates
    run = {place: updates(own).grouped()["adamw"] for place, own in ((0, tables.own), (1, None))}
    before = kernels_run()
    with torch.inference_mode():
        made = run[0][0b01101](ours, *numbers)
        assert kernels_run() == before + 1
        expected = run[1][0b01101](theirs, *numbers)
    for one, other, member in zip(made, expected, ours, strict=True):
        agree(one, other)
        assert one[0].data_ptr() == member[0].data_ptr()
    tables.check("adamw", *ours[0], *numbers)


def _group(tables: Tables) -> list[tuple[Tensor | None, ...]]:
    members: list[tuple[Tensor | None, ...]] = []
    for seed, shape in enumerate([(3, 5), (1,), (0,), (300,)]):
        param, mean, square = (
            tables.drawn(*shape, dtype=torch.float32, seed=10 * seed + place) for place in range(3)
        )
        grad = tables.drawn(*reversed(shape), dtype=torch.float32, seed=10 * seed + 3)
        members.append((param, grad.t() if grad.dim() == 2 else grad, mean, square.abs(), None))
    return members
