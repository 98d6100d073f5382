"""`vmap`: runs a function for each entry of a batch, one after the other, and stacks
the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import InvalidUse, InvalidValue

P = ParamSpec("P")
R = TypeVar("R")
Tree: TypeAlias = Any  # a tensor, or lists, tuples and dictionaries of trees
Dims: TypeAlias = Any  # a dimension or None, or a tree of them
RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[P, R],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """A function that runs `func` for each entry of a batch and stacks the results.

    It runs them one after the other, so it costs what a loop does; operations that have a batch
    dimension of their own are faster.

    Args:
        func: function of one entry that returns tensors.
        in_dims: dimension of the entries, or None for an argument shared by all; one for all
            arguments, or a tuple of one each, with the structure of that argument. Keyword
            arguments are shared by all entries.
        out_dims: dimension of the entries in the results; one, or a tuple of one for each result.
        randomness: how draws in `func` behave: an "error", "different" ones, or the "same" for each
            entry.
        chunk_size: accepted and ignored: entries run one by one.

    Raises:
        InvalidValue: dimensions that do not fit, results that are no tensors.
        InvalidUse: draws, unless `randomness` allows them.
    """
    name = getattr(func, "__name__", repr(func))
    if randomness not in RANDOMNESS:
        raise InvalidUse(
            "Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise InvalidValue(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def batched(*args: Tree, **kwargs: Tree) -> Tree:
        call = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "
        if not isinstance(in_dims, int | tuple):
            raise InvalidValue(
                f"{call}expected `in_dims` to be int or a (potentially nested) tuple matching the "
                f"structure of inputs, got: {type(in_dims)}."
            )
        if not args:
            raise InvalidValue(
                f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
                "are trying to vmap over a function with no inputs. The latter is unsupported."
            )
        taken = _entries(args, in_dims, call)
        results = _run(functools.partial(func, **kwargs), taken, randomness)
        return _stacked(results, out_dims, name)

    return batched


def _run(func: Callable[..., Tree], args: Sequence[Tree], randomness: str) -> list[Tree]:
    """The results of each entry."""
    results, state = [], _core.rng_state()
    for own in args:
        if randomness == "same":
            _core.set_rng_state(*state)
        results.append(func(*own))
        if randomness == "error" and _core.rng_state() != state:
            raise InvalidUse(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap"
            )
    return results


def _entries(tree: Tree, dims: Dims, call: str) -> list[Tree]:
    """The tree of each entry of the batch."""
    sizes: list[int] = []
    taken = _taken(tree, dims, sizes, call)
    if not sizes:
        raise InvalidValue("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise InvalidValue(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    if not sizes[0]:
        raise InvalidValue("vmap: an empty batch has no entry that says what results")
    return [taken(place) for place in range(sizes[0])]


def _taken(tree: Tree, dims: Dims, sizes: list[int], call: str) -> Callable[[int], Tree]:
    """A function of an entry's index that returns its tree; appends each tensor's number of entries
    to `sizes`.
    """
    if isinstance(tree, Mapping | tuple | list):
        return _taken_of_several(tree, dims, sizes, call)
    if dims is None:
        return lambda _: tree
    if isinstance(dims, bool) or not isinstance(dims, int):
        raise InvalidValue(
            f"{call}in_dims is not compatible with the structure of `inputs`: {dims} for a "
            f"{type(tree).__name__}"
        )
    if not isinstance(tree, Tensor):
        raise InvalidValue(
            f"{call}Got in_dim={dims} for an input but the input is of type {type(tree)}. We "
            "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -tree.ndim <= dims < tree.ndim:
        raise InvalidValue(
            f"{call}Got in_dim={dims} for some input, but that input is a Tensor of dimensionality "
            f"{tree.ndim} so expected in_dim to satisfy -{tree.ndim} <= in_dim < {tree.ndim}."
        )
    sizes.append(tree.shape[dims])
    entries = tree.unbind(dims)
    return lambda place: entries[place]


def _taken_of_several(
    tree: Mapping[Any, Tree] | tuple[Tree, ...] | list[Tree],
    dims: Dims,
    sizes: list[int],
    call: str,
) -> Callable[[int], Tree]:
    keys = list(tree) if isinstance(tree, Mapping) else list(range(len(tree)))
    if dims is None or isinstance(dims, int):
        own = dict.fromkeys(keys, dims)
    else:
        dims_by_key = dims if isinstance(dims, Mapping) else dict(enumerate(dims))
        if isinstance(dims, Mapping) != isinstance(tree, Mapping) or set(dims_by_key) != set(keys):
            raise InvalidValue(
                f"{call}in_dims is not compatible with the structure of `inputs`: {dims}"
            )
        own = dict(dims_by_key)
    parts = {key: _taken(tree[key], own[key], sizes, call) for key in keys}
    if isinstance(tree, Mapping):
        return lambda place: {key: part(place) for key, part in parts.items()}
    return lambda place: _like(tree, [part(place) for part in parts.values()])


def _like(tree: Tree, items: list[Tree]) -> Tree:
    """A tuple or list of the tree's kind; of a named tuple, too."""
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def _stacked(results: list[Tree], dims: Dims, name: str) -> Tree:
    """The results of all entries as one tree of tensors."""
    first = results[0]
    if isinstance(first, Mapping | tuple | list):
        keys = list(first) if isinstance(first, Mapping) else list(range(len(first)))
        if isinstance(dims, tuple | list | Mapping):
            own = dims if isinstance(dims, Mapping) else dict(enumerate(dims))
            if set(own) != set(keys):
                raise InvalidValue(
                    f"vmap({name}, ..., out_dims={dims}): out_dims is not compatible with the "
                    f"structure of the outputs: {len(keys)} of them"
                )
        else:
            own = dict.fromkeys(keys, dims)
        parts = [_stacked([each[key] for each in results], own[key], name) for key in keys]
        if isinstance(first, Mapping):
            return dict(zip(keys, parts, strict=True))
        return _like(first, parts)
    if isinstance(dims, tuple) and len(dims) == 1:
        (dims,) = dims
    if dims is None:
        return first
    if not isinstance(first, Tensor):
        raise InvalidValue(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(first)}. Did "
            "you mean to set out_dims= to None for output?"
        )
    return gt.stack(results, dim=dims)
