"""Einstein summation by permute, reshape and matmul, one pair of operands at a time.

The steps follow from the equation and the shapes; they are planned once and cached.
"""

import functools
import math
import string
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import not_in_list
from gt.errors import InvalidValue, ShapeError

Shape: TypeAlias = tuple[int, ...]

PLANS_MAX = 1024  # Limit of cached plans, by equation and shapes: a program has some dozens
ELLIPSIS = string.digits  # Names of the dimensions that "..." stands for, counted from the last


def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Any]) -> Tensor:
    """Sums of products over the indices that the result does not have.

    Args:
        equation: as in PyTorch, `"bij,bjk->bik"`; `...` and repeated indices are allowed. Or
            operands and lists of their index numbers in turn, followed by the result's: `einsum(x,
            [0, 1], y, [1, 2], [0, 2])`.
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
    shapes = tuple([x.shape for x in tensors])
    for step in planned(equation, shapes, _core.autocast_region() is not None or casts(tensors)):
        place = step.place
        tensors[place] = _taken(step, tensors[place], tensors)
    return tensors[0]


def casts(tensors: Sequence[Tensor]) -> bool:
    """True if a product by elements and one by matrices give different results: several dtypes, or
    integers.
    """
    dtypes = {x.dtype for x in tensors}
    return len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes)


class Step(NamedTuple):
    """One instruction: `action` on the operand at an index, which the result replaces."""

    action: str
    place: int
    numbers: Shape = ()  # dimensions, a shape, or the place of the other operand


def _taken(step: Step, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    match step.action:
        case "permute":
            return x.permute(step.numbers)
        case "reshape":
            return x.reshape(step.numbers)
        case "sum":
            return call("sum", x, dim=step.numbers, keepdim=False)
        case "diagonal":
            return call("diagonal", x, offset=0, dim1=step.numbers[0], dim2=step.numbers[1])
        case "matmul":
            return x @ tensors[step.numbers[0]]
        case _:
            assert step.action == "mul", step
            return x * tensors[step.numbers[0]]


@functools.lru_cache(maxsize=PLANS_MAX)
def planned(equation: str, shapes: tuple[Shape, ...], is_cast: bool) -> tuple[Step, ...]:
    """The steps that compute an equation on operands of these shapes; the result takes the first
    one's place.

    Args:
        equation: einsum's equation.
        shapes: shapes of the operands.
        is_cast: True within an autocast or for several dtypes: then only products that PyTorch
            computes as matrix products may be such.
    """
    terms, result = parsed(equation, shapes)
    plan = Plan(is_cast)
    pairs = [
        plan.diagonals(Term(*each)) for each in zip(range(len(terms)), terms, shapes, strict=True)
    ]
    check_sizes(pairs)
    left = pairs[0]
    for place, right in enumerate(pairs[1:], 1):
        letters = set(result).union(*(term.indices for term in pairs[place + 1 :]))
        left = plan.contracted(left, right, letters)
    left = plan.summed(left, set(result))
    for letter in result:
        if letter not in left.indices:
            raise ShapeError(
                f"einsum(): output subscript {letter} does not appear in the equation for any "
                "input operand"
            )
    plan.permuted(left, tuple(left.indices.index(i) for i in result), always=not plan.steps)
    return tuple(plan.steps)


def lettered(turns: Sequence[Any]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation for operands and index lists in turn, and the operands."""
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
    """Letters for index numbers: those below 26 are capital, as in PyTorch."""
    letters = string.ascii_uppercase + string.ascii_lowercase
    if any(index is not ... and not 0 <= index < len(letters) for index in indices):
        raise InvalidValue(
            "einsum(): subscript in subscript list is not within the valid range "
            f"[0, {len(letters)})"
        )
    return "".join("..." if index is ... else letters[index] for index in indices)


def parsed(equation: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """A string of indices for each operand, and that of the result."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        many = "more" if len(shapes) > len(terms) else "fewer"
        raise ShapeError(f"einsum(): {many} operands were provided than specified in the equation")
    named = [dotted(term, len(shape)) for term, shape in zip(terms, shapes, strict=True)]
    dots = max((sum(i in ELLIPSIS for i in term) for term in named), default=0)
    shared = ELLIPSIS[:dots][::-1]
    if arrow:
        return named, output.replace("...", shared)
    letters = sorted("".join(named))
    once = [i for i in letters if letters.count(i) == 1 and i not in ELLIPSIS]
    return named, shared + "".join(once)


def dotted(term: str, ndim: int) -> str:
    """A term with names in place of its ellipsis."""
    hidden = ndim - len(term.replace("...", ""))
    if hidden < 0 or (hidden and "..." not in term):
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({len(term)}) does not match the "
            f"number of dimensions ({ndim}) for an operand"
        )
    return term.replace("...", ELLIPSIS[:hidden][::-1])


class Term(NamedTuple):
    """An operand at some point of the plan: its place, its indices, and their sizes."""

    place: int
    indices: str
    shape: Shape


def check_sizes(terms: Sequence[Term]) -> None:
    """Raises unless each index has one size, or 1."""
    size: dict[str, int] = {}
    for _, indices, shape in terms:
        for n, i in zip(shape, indices, strict=True):
            if n != 1 and size.setdefault(i, n) != n:
                raise ShapeError(
                    f"einsum(): subscript {i} has size {n} for operand {indices} which does not "
                    f"broadcast with previously seen size {size[i]}"
                )


class Plan:
    """The steps of an equation, collected during planning.

    Args:
        is_cast: True if only products that PyTorch computes as matrix products may be such.
    """

    def __init__(self, is_cast: bool) -> None:
        self.steps: list[Step] = []
        self._is_cast = is_cast

    def diagonals(self, term: Term) -> Term:
        """The term with repeated indices replaced by diagonals."""
        place, indices, shape = term
        for i in dict.fromkeys(indices):
            while indices.count(i) > 1:
                first, second = indices.index(i), indices.index(i, indices.index(i) + 1)
                if shape[first] != shape[second]:
                    raise ShapeError(f"einsum(): subscript {i} is repeated with different sizes")
                self.steps.append(Step("diagonal", place, (first, second)))
                rest = [d for d in range(len(shape)) if d not in {first, second}]
                shape = (*(shape[d] for d in rest), shape[first])
                indices = "".join(indices[d] for d in rest) + i
        return Term(place, indices, shape)

    def summed(self, term: Term, kept: set[str]) -> Term:
        """The term summed over all indices that are not kept."""
        over = tuple(d for d, i in enumerate(term.indices) if i not in kept)
        if not over:
            return term
        self.steps.append(Step("sum", term.place, over))
        return _at(term, [d for d in range(len(term.shape)) if d not in over])

    def contracted(self, left: Term, right: Term, kept: set[str]) -> Term:
        """The product of two operands as one matrix product; an index of size 1 on one side
        broadcasts.
        """
        left = self.summed(left, kept.union(right.indices))
        right = self.summed(right, kept.union(left.indices))
        left = self.without_ones(left, right)
        right = self.without_ones(right, left)
        batch = [i for i in left.indices if i in right.indices and i in kept]
        over = [i for i in left.indices if i in right.indices and i not in kept]
        rows = [i for i in left.indices if i not in right.indices]
        columns = [i for i in right.indices if i not in left.indices]
        size = dict(zip(right.indices, right.shape, strict=True))
        size |= dict(zip(left.indices, left.shape, strict=True))
        b, m, k, n = (math.prod(size[i] for i in group) for group in (batch, rows, over, columns))
        first = self.ordered(left, [*batch, *rows, *over])
        second = self.ordered(right, [*batch, *over, *columns])
        outer = (b,) if batch else ()
        first = self.reshaped(first, (*outer, m, k))
        second = self.reshaped(second, (*outer, k, n))
        by_elements = not over and self._is_cast  # PyTorch computes no matrix product here
        self.steps.append(Step("mul" if by_elements else "matmul", left.place, (right.place,)))
        indices = "".join([*batch, *rows, *columns])
        product = Term(left.place, indices, (*outer, m, n))
        return self.reshaped(product, tuple(size[i] for i in indices))

    def without_ones(self, term: Term, other: Term) -> Term:
        """The term without indices of size 1 that the other operand has with more elements."""
        wide = {i for i, n in zip(other.indices, other.shape, strict=True) if n != 1}
        pairs = enumerate(zip(term.indices, term.shape, strict=True))
        rest = [d for d, (i, n) in pairs if not (n == 1 and i in wide)]
        fewer = _at(term, rest)
        return fewer if len(rest) == len(term.shape) else self.reshaped(term, fewer.shape, fewer)

    def ordered(self, term: Term, indices: Sequence[str]) -> Term:
        """The term with its indices in this order."""
        dims = tuple(term.indices.index(i) for i in indices)
        self.permuted(term, dims)
        return _at(term, dims)

    def permuted(self, term: Term, dims: Shape, *, always: bool = False) -> None:
        """Adds a permutation, unless the dimensions have that order already."""
        if always or dims != tuple(range(len(dims))):
            self.steps.append(Step("permute", term.place, dims))

    def reshaped(self, term: Term, shape: Shape, result: Term | None = None) -> Term:
        """The term in another shape; adds a step unless it has that shape."""
        if shape != term.shape:
            self.steps.append(Step("reshape", term.place, shape))
        return result or term._replace(shape=shape)


def _at(term: Term, dims: Sequence[int]) -> Term:
    """The term of some dimensions, in the given order."""
    shape = tuple(term.shape[d] for d in dims)
    return Term(term.place, "".join(term.indices[d] for d in dims), shape)
