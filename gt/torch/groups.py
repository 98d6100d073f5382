"""Products of groups of rows or columns, as in mixtures of experts: `aten::_grouped_mm`."""

from __future__ import annotations

from collections.abc import Callable

import gt
from gt import _core
from gt._core import Tensor

_STACK = 3  # dimensions of a stack of matrices
_DTYPES = frozenset({_core.float32, _core.bfloat16, _core.float16})
_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "bool": "Bool", "complex64": "ComplexFloat",
}  # fmt: skip


def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: _core.dtype | None = None,
) -> Tensor:
    """Products of groups of rows, columns or both, which end at the indices in `offs`, which are
    read.
    """
    _check(self, mat2, offs, bias, out_dtype)
    if offs is None:
        product = self @ mat2
    else:
        ends = [int(end) for end in offs.tolist()]
        product = _of_groups(self, mat2, list(zip([0, *ends], ends, strict=False)))
    return product


def _of_groups(left: Tensor, right: Tensor, groups: list[tuple[int, int]]) -> Tensor:
    """The product of each group; rows or columns behind the last one, which PyTorch leaves unset,
    are 0.
    """
    if left.ndim == right.ndim == 2:  # [m, k], [k, n] -> [g, m, n]
        return gt.stack([left[:, begin:end] @ right[begin:end] for begin, end in groups])
    if left.ndim == 2:  # [m, k], [g, k, n] -> [m, n]
        parts = [left[begin:end] @ right[at] for at, (begin, end) in enumerate(groups)]
        behind = gt.zeros_like(left[groups[-1][1] :] @ right[-1])
        return gt.cat([*parts, behind])
    # [g, m, k], [k, n] -> [m, n]
    parts = [left[at] @ right[:, begin:end] for at, (begin, end) in enumerate(groups)]
    behind = gt.zeros_like(left[-1] @ right[:, groups[-1][1] :])
    return gt.cat([*parts, behind], dim=1)


def _check(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None,
    bias: Tensor | None,
    out_dtype: _core.dtype | None,
) -> None:
    """Raises PyTorch's errors, in its order."""
    names = [str(x.dtype).rpartition(".")[2] for x in (left, right)]
    kinds = [_NAMES.get(name, name) for name in names]
    are_stacks = left.ndim == right.ndim == _STACK
    is_whole = _STACK in (left.ndim, right.ndim)  # each group has whole rows or columns
    text: str | None
    if left.dtype != right.dtype:
        text = f"Expected mat_a and mat_b to have the same dtype, got {kinds[0]} and {kinds[1]}"
    elif left.dtype not in _DTYPES:
        text = f"Expected mat_a to be Float32, BFloat16 or Float16 matrix, got {kinds[0]}"
    elif left.ndim not in (2, _STACK):
        text = "mat_a has to be 2 or 3d"
    elif right.ndim not in (2, _STACK):
        text = "mat_b has to be 2 or 3d"
    elif is_whole and left.shape[-1] != right.shape[-2]:
        text = "contraction dimension of mat_a and mat_b must match"
    elif (offs is None) != are_stacks:
        text = (
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    else:
        text = _misfit(left, right, offs)
    if text is None and bias is not None:
        text = "Bias not supported yet"
    if text is None and out_dtype not in (None, left.dtype):
        text = "Grouped gemm output dtype must match `mat_a` dtype"
    if text is not None:
        raise RuntimeError(text)


def _misfit(left: Tensor, right: Tensor, offs: Tensor | None) -> str | None:
    """The mismatch in the numbers of groups; None if they agree."""
    if offs is None:
        return None if left.shape[0] == right.shape[0] else "batched dimension has to match"
    if offs.ndim != 1:
        return "offs has to be 1D"
    if offs.dtype != _core.int32:
        return "Offsets have to be int32"
    counts = {x.shape[0] for x in (left, right) if x.ndim == _STACK} | {offs.shape[0]}
    return None if len(counts) == 1 else "matrix batch sizes have to match"


FUNCTIONS: dict[str, Callable[..., object]] = {"_grouped_mm": _grouped_mm}
