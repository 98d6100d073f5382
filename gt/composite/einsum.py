"""Einstein summation by permute, reshape and matmul, one pair of operands at a time."""

import math
import string
from collections.abc import Sequence
from typing import Any

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import not_in_list
from gt.errors import InvalidValue, ShapeError

ELLIPSIS = string.digits  # names of the dimensions that "..." stands for, counted from the last


def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Any]) -> Tensor:
    """Products of elements summed over the indices that the result does not have.

    Args:
        equation: as in PyTorch, `"bij,bjk->bik"`; `...` and repeated indices are understood. Or
            operands and numbers of their indices by turns, and at last those of the result:
            `einsum(x, [0, 1], y, [1, 2], [0, 2])`.
    """
    if not isinstance(equation, str):
        equation, operands = lettered((equation, *operands))
    tensors: list[Tensor] = []
    for operand in operands:
        several = isinstance(operand, list | tuple)
        tensors += operand if several else [operand]  # type: ignore[list-item] # looked at below
    for place, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise not_in_list(x, place, 1)
    terms, result = parsed(equation, tensors)
    pairs = [diagonals(x, term) for x, term in zip(tensors, terms, strict=True)]
    check_sizes(pairs)
    left, indices = pairs[0]
    for place, (right, other) in enumerate(pairs[1:], 1):
        letters = set(result).union(*(term for _, term in pairs[place + 1 :]))
        left, indices = contracted(left, indices, right, other, letters)
    left, indices = summed(left, indices, set(result))
    return left.permute(tuple(indices.index(i) for i in result))


def lettered(turns: Sequence[Any]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation of operands and indices by turns, and the operands."""
    if len(turns) < 2:
        raise InvalidValue(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    pairs = len(turns) // 2 * 2
    terms = [_letters(indices) for indices in turns[1:pairs:2]]
    result = f"->{_letters(turns[-1])}" if len(turns) % 2 else ""
    return ",".join(terms) + result, tuple(turns[0:pairs:2])


def _letters(indices: Sequence[Any]) -> str:
    """Letters for numbers of indices: those below 26 are capital, as in PyTorch."""
    letters = string.ascii_uppercase + string.ascii_lowercase
    if any(index is not ... and not 0 <= index < len(letters) for index in indices):
        raise InvalidValue(
            "einsum(): subscript in subscript list is not within the valid range "
            f"[0, {len(letters)})"
        )
    return "".join("..." if index is ... else letters[index] for index in indices)


def parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """One string of indices an operand, and that of the result."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(tensors):
        many = "more" if len(tensors) > len(terms) else "fewer"
        raise ShapeError(f"einsum(): {many} operands were provided than specified in the equation")
    named = [dotted(term, x.ndim) for term, x in zip(terms, tensors, strict=True)]
    dots = max((sum(i in ELLIPSIS for i in term) for term in named), default=0)
    shared = ELLIPSIS[:dots][::-1]
    if arrow:
        return named, output.replace("...", shared)
    letters = sorted("".join(named))
    once = [i for i in letters if letters.count(i) == 1 and i not in ELLIPSIS]
    return named, shared + "".join(once)


def dotted(term: str, ndim: int) -> str:
    """A term with names in place of its dots."""
    hidden = ndim - len(term.replace("...", ""))
    if hidden < 0 or (hidden and "..." not in term):
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({len(term)}) does not match the "
            f"number of dimensions ({ndim}) for an operand"
        )
    return term.replace("...", ELLIPSIS[:hidden][::-1])


def diagonals(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Repeated indices taken as diagonals."""
    for i in dict.fromkeys(term):
        while term.count(i) > 1:
            first, second = term.index(i), term.index(i, term.index(i) + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"einsum(): subscript {i} is repeated with different sizes")
            x = call("diagonal", x, offset=0, dim1=first, dim2=second)
            term = "".join(c for d, c in enumerate(term) if d not in {first, second}) + i
    return x, term


def check_sizes(pairs: Sequence[tuple[Tensor, str]]) -> None:
    """An index has one size, or 1."""
    size: dict[str, int] = {}
    for x, term in pairs:
        for n, i in zip(x.shape, term, strict=True):
            if n != 1 and size.setdefault(i, n) != n:
                raise ShapeError(
                    f"einsum(): subscript {i} has size {n} for operand {term} which does not "
                    f"broadcast with previously seen size {size[i]}"
                )


def summed(x: Tensor, term: str, kept: set[str]) -> tuple[Tensor, str]:
    """The sum over all indices that are not kept."""
    over = tuple(d for d, i in enumerate(term) if i not in kept)
    if not over:
        return x, term
    rest = "".join(i for i in term if i in kept)
    return call("sum", x, dim=over, keepdim=False), rest


def contracted(x: Tensor, left: str, y: Tensor, right: str, kept: set[str]) -> tuple[Tensor, str]:
    """Two operands as one batched matrix product; an index of size 1 on one side broadcasts."""
    x, left = summed(x, left, kept.union(right))
    y, right = summed(y, right, kept.union(left))
    x, left = dropped_ones(x, left, y, right)
    y, right = dropped_ones(y, right, x, left)
    batch = [i for i in left if i in right and i in kept]
    over = [i for i in left if i in right and i not in kept]
    rows = [i for i in left if i not in right]
    columns = [i for i in right if i not in left]
    size = dict(zip(right, y.shape, strict=True)) | dict(zip(left, x.shape, strict=True))
    b, m, k, n = (math.prod(size[i] for i in group) for group in (batch, rows, over, columns))
    first = x.permute(tuple(left.index(i) for i in [*batch, *rows, *over])).reshape((b, m, k))
    second = y.permute(tuple(right.index(i) for i in [*batch, *over, *columns])).reshape((b, k, n))
    shape = tuple(size[i] for i in [*batch, *rows, *columns])
    if not over and _core.autocast_region() is not None:  # no product of matrices in PyTorch
        return (first * second).reshape(shape), "".join([*batch, *rows, *columns])
    return (first @ second).reshape(shape), "".join([*batch, *rows, *columns])  # [b, m, n]


def dropped_ones(x: Tensor, term: str, other: Tensor, other_term: str) -> tuple[Tensor, str]:
    """Without indices of size 1 that the other operand has with more elements."""
    wide = {i for i, n in zip(other_term, other.shape, strict=True) if n != 1}
    rest = [d for d, i in enumerate(term) if not (x.shape[d] == 1 and i in wide)]
    if len(rest) == len(term):
        return x, term
    return x.reshape(tuple(x.shape[d] for d in rest)), "".join(term[d] for d in rest)
