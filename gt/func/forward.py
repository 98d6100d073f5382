"""Jacobian-vector products: PyTorch computes them by forward mode, GT by two backward passes.

The second pass differentiates the first, so the numbers are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import gt
from gt._core import Tensor
from gt.autograd.grad_mode import enable_grad
from gt.errors import InvalidUse
from gt.func.transforms import (
    Places,
    Tree,
    detached,
    fresh,
    gradients,
    jacrev,
    leaves_of,
    rebuilt,
    unrecorded,
)


def jvp(
    func: Callable[..., Tree],
    primals: tuple[Tree, ...],
    tangents: tuple[Tree, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Tree, Tree] | tuple[Tree, Tree, Tree]:
    """The value of `func`, and the product of its Jacobian with the tangents.

    Args:
        func: returns a tensor or a tree of them; with `has_aux`, also an auxiliary result.
        primals: arguments of `func`.
        tangents: trees with the structure and shapes of the primals.
        strict: accepted and ignored: outputs that do not depend on the primals have zero products.
        has_aux: return the auxiliary result of `func` as the third.
    """
    del strict
    if not primals:
        raise InvalidUse("jvp(func, primals, tangents): Expected primals to be a non-empty tuple")
    args, chosen = fresh(primals, tuple(range(len(primals))))
    inputs, vectors = leaves_of(chosen), leaves_of(tangents)
    _check_tangents(inputs, vectors)
    with enable_grad():
        returned = func(*args)
        value, aux = returned if has_aux else (returned, None)
        outputs = leaves_of(value)
        products = _product(outputs, inputs, vectors)
    product = rebuilt(value, iter(detached(products, inputs)))
    shown = rebuilt(value, iter(detached(outputs, inputs)))
    return (shown, product, unrecorded(aux, inputs)) if has_aux else (shown, product)


def linearize(func: Callable[..., Tree], *primals: Tree) -> tuple[Tree, Callable[..., Tree]]:
    """The value of `func`, and the function that multiplies its Jacobian there with tangents.

    Args:
        func: returns a tensor or a tree of them.
        primals: arguments of `func`.
    """
    args, chosen = fresh(primals, tuple(range(len(primals))))
    inputs = leaves_of(chosen)
    with enable_grad():
        value = func(*args)
    outputs = leaves_of(value)

    def product(*tangents: Tree) -> Tree:
        vectors = leaves_of(tangents)
        _check_tangents(inputs, vectors)
        with enable_grad():
            products = _product(outputs, inputs, vectors)
        return rebuilt(value, iter(detached(products, inputs)))

    return rebuilt(value, iter(detached(outputs, inputs))), product


def jacfwd(
    func: Callable[..., Tree],
    argnums: Places = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Tree]:
    """`jacrev`: the same Jacobian, a backward pass for each element of the output.

    Args:
        func: returns a tensor or a tree of them; with `has_aux`, also an auxiliary result.
        argnums: index or indices of the arguments to differentiate by.
        has_aux: return the auxiliary result of `func` beside the Jacobian.
        chunk_size: accepted and ignored: passes run one after the other.
        randomness: accepted and ignored: `func` runs once.
    """
    del chunk_size, randomness
    return functools.wraps(func)(jacrev(func, argnums, has_aux=has_aux))


def _product(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor]
) -> list[Tensor]:
    """The Jacobian of outputs by inputs, times the vectors: the derivative of a backward pass."""
    seeds = [gt.zeros_like(x).requires_grad_() for x in outputs]
    return gradients(gradients(outputs, inputs, seeds), seeds, vectors)


def _check_tangents(inputs: Sequence[Tensor], vectors: Sequence[Tensor]) -> None:
    if len(inputs) != len(vectors):
        raise InvalidUse(
            "jvp(func, primals, tangents): Expected primals and tangents to have the same python "
            f"structure: {len(inputs)} tensors, not {len(vectors)}"
        )
    for x, v in zip(inputs, vectors, strict=True):
        if x.shape != v.shape:
            raise InvalidUse(
                "Trying to set a forward gradient that has a different size than that of the "
                f"original Tensor, this is not supported. Tensor is of size {list(x.shape)} while "
                f"the given forward gradient is of size {list(v.shape)}."
            )
