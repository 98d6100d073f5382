"""Functions that compute derivatives of functions, by passes over the tape.

The differentiated arguments are replaced by new inputs; other tensors that the function uses keep
their history, so that results can be differentiated again by anything that they depend on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gt
from gt._core import GradFn, Tensor
from gt.autograd.grad_mode import enable_grad
from gt.autograd.passes import grad as gradients_of
from gt.errors import InvalidType, InvalidUse, NotSupported

Tree: TypeAlias = Any  # a tensor, or lists, tuples and dictionaries of trees
Places: TypeAlias = int | tuple[int, ...]


def grad(
    func: Callable[..., Tree], argnums: Places = 0, has_aux: bool = False
) -> Callable[..., Tree]:
    """A function that computes the gradient of `func`, whose result has one element.

    Args:
        func: returns a tensor without dimensions; with `has_aux`, also an auxiliary result.
        argnums: index or indices of the arguments to differentiate by.
        has_aux: return the auxiliary result of `func` beside the gradient.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def derivative(*args: Tree, **kwargs: Tree) -> Tree:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return derivative


def grad_and_value(
    func: Callable[..., Tree], argnums: Places = 0, has_aux: bool = False
) -> Callable[..., tuple[Tree, Tree]]:
    """A function that computes the gradient of `func` and its value; arguments as for `grad`."""

    @functools.wraps(func)
    def derivative(*args: Tree, **kwargs: Tree) -> tuple[Tree, Tree]:
        args, chosen = fresh(args, argnums)
        leaves = leaves_of(chosen)
        with enable_grad():
            returned = func(*args, **kwargs)
            value, aux = returned if has_aux else (returned, None)
            _check_scalar("grad", value)
            results = gradients([value], leaves, [gt.ones_like(value)])
        shown = rebuilt(chosen, iter(detached(results, leaves)))
        value = detached([value], leaves)[0]
        return shown, (value, unrecorded(aux, leaves)) if has_aux else value

    return derivative


def vjp(
    func: Callable[..., Tree], *primals: Tree, has_aux: bool = False
) -> tuple[Tree, Callable[..., tuple[Tree, ...]]] | tuple[Tree, Callable[..., Tree], Tree]:
    """The value of `func`, and the function that multiplies a cotangent with its Jacobian.

    Args:
        func: returns a tensor or a tree of them; with `has_aux`, also an auxiliary result.
        primals: arguments of `func`.
        has_aux: return the auxiliary result of `func` as the third.
    """
    args, chosen = fresh(primals, tuple(range(len(primals))))
    leaves = leaves_of(chosen)
    with enable_grad():
        returned = func(*args)
    value, aux = returned if has_aux else (returned, None)
    outputs = leaves_of(value)

    def product(*cotangents: Tree) -> tuple[Tree, ...]:
        cotangent = cotangents[0] if len(cotangents) == 1 else cotangents
        seeds = leaves_of(cotangent)
        if len(seeds) != len(outputs):
            raise InvalidUse(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function: {len(outputs)} tensors, not {len(seeds)}"
            )
        with enable_grad():
            products = gradients(outputs, leaves, seeds)
        return tuple(rebuilt(chosen, iter(detached(products, leaves))))

    shown = rebuilt(value, iter(detached(outputs, leaves)))
    return (shown, product, unrecorded(aux, leaves)) if has_aux else (shown, product)


def jacrev(
    func: Callable[..., Tree],
    argnums: Places = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Tree]:
    """A function that gives the Jacobian of `func`, a backward pass for each element of the output.

    Args:
        func: returns a tensor or a tree of them; with `has_aux`, also an auxiliary result.
        argnums: index or indices of the arguments to differentiate by.
        has_aux: return the auxiliary result of `func` beside the Jacobian.
        chunk_size: accepted and ignored: passes run one after the other.
    """
    del chunk_size

    @functools.wraps(func)
    def derivative(*args: Tree, **kwargs: Tree) -> Tree:
        args, chosen = fresh(args, argnums)
        leaves = leaves_of(chosen)
        with enable_grad():
            returned = func(*args, **kwargs)
            value, aux = returned if has_aux else (returned, None)
            blocks = [
                rebuilt(chosen, iter(detached(_block(x, leaves), leaves))) for x in leaves_of(value)
            ]
        jacobian = rebuilt(value, iter(blocks))
        return (jacobian, unrecorded(aux, leaves)) if has_aux else jacobian

    return derivative


def hessian(func: Callable[..., Tree], argnums: Places = 0) -> Callable[..., Tree]:
    """A function that gives the Hessian of `func`: the Jacobian of its Jacobian."""
    return jacrev(jacrev(func, argnums), argnums)


def _block(output: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The Jacobian of one output for each leaf."""
    flat = output.reshape(-1)
    rows = [
        gradients([flat[place]], leaves, [gt.ones_like(flat[place])])
        for place in range(flat.numel())
    ]
    return [
        gt.stack([row[place] for row in rows]).reshape((*output.shape, *x.shape))
        if rows
        else gt.zeros((*output.shape, *x.shape), dtype=x.dtype)
        for place, x in enumerate(leaves)
    ]


def gradients(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], seeds: Sequence[Tensor]
) -> list[Tensor]:
    """Recorded gradients; zeros for leaves that no output depends on."""
    pairs = [(x, seed) for x, seed in zip(outputs, seeds, strict=True) if x.requires_grad]
    if not pairs or not leaves:
        return [gt.zeros_like(x) for x in leaves]
    results = gradients_of(
        [x for x, _ in pairs],
        leaves,
        [seed for _, seed in pairs],
        create_graph=True,
        materialize_grads=True,
    )
    return [x for x in results if x is not None]


def fresh(args: tuple[Tree, ...], argnums: Places) -> tuple[tuple[Tree, ...], Tree]:
    """The arguments with new inputs at the chosen places, and these inputs."""
    count = len(args)
    places = [argnums] if isinstance(argnums, int) else list(argnums)
    for place in places:
        if not -count <= place < count:
            raise InvalidUse(f"Got argnum={place}, but only {count} positional inputs")
    listed = list(args)
    for place in {place % count for place in places}:
        listed[place] = _mapped(listed[place])
    chosen = [listed[place] for place in places]
    return tuple(listed), chosen[0] if isinstance(argnums, int) else tuple(chosen)


def _input(x: object) -> Tensor:
    if not isinstance(x, Tensor):
        raise InvalidType(f"expected tensors to differentiate by, got {type(x).__name__}")
    if not x.is_floating_point():
        raise NotSupported(f"a tensor of {x.dtype} has no gradient")
    with enable_grad():
        return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def _mapped(tree: Tree) -> Tree:
    if isinstance(tree, Mapping):
        return {name: _mapped(item) for name, item in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)([_mapped(item) for item in tree])
    return _input(tree)


def leaves_of(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in its order."""
    if isinstance(tree, Mapping):
        return [leaf for item in tree.values() for leaf in leaves_of(item)]
    if isinstance(tree, tuple | list):
        return [leaf for item in tree for leaf in leaves_of(item)]
    if not isinstance(tree, Tensor):
        raise InvalidType(f"expected the function to return tensors, got {type(tree).__name__}")
    return [tree]


def rebuilt(tree: Tree, items: Any) -> Tree:  # noqa: ANN401 - an iterator over trees
    """A tree of the same form."""
    if isinstance(tree, Mapping):
        return {name: rebuilt(item, items) for name, item in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)([rebuilt(item, items) for item in tree])
    return next(items)


def detached(results: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Results without their history if it leads only to the inputs made here."""
    nodes = {_accumulation(x) for x in leaves if x.is_leaf}
    roots = [x.grad_fn for x in results if x.grad_fn is not None]
    seen: set[GradFn] = set()
    while roots:
        node = roots.pop()
        if node in seen:
            continue
        seen.add(node)
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following.name() == "torch::autograd::AccumulateGrad":
                if following not in nodes:
                    return list(results)
            else:
                roots.append(following)
    return [x.detach() for x in results]


def unrecorded(aux: Tree, leaves: Sequence[Tensor]) -> Tree:
    """A function's auxiliary results; their tensors lose the history of the inputs made here."""
    if isinstance(aux, Mapping):
        return {name: unrecorded(item, leaves) for name, item in aux.items()}
    if type(aux) in (tuple, list):
        return type(aux)([unrecorded(item, leaves) for item in aux])
    return detached([aux], leaves)[0] if isinstance(aux, Tensor) else aux


def _accumulation(leaf: Tensor) -> GradFn | None:
    """The node where a leaf's gradient accumulates."""
    with enable_grad():
        node = leaf.view_as(leaf).grad_fn
    return None if node is None else node.next_functions[0][0]


def _check_scalar(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InvalidUse(
            f"Expected the function to be differentiated by {name} to return a Tensor, got "
            f"{type(value).__name__}"
        )
    if value.ndim:
        raise InvalidUse(
            f"Expected the function to be differentiated by {name} to return a scalar tensor, got "
            f"tensor with {value.ndim} dims. Maybe you'd like to use jacrev?"
        )
