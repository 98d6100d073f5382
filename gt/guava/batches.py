"""Batches of any data loader as a step's micro-batches, and the placement of their shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import gt
from gt.errors import InvalidType

__all__ = ["MicroBatch", "micro_batches", "placed", "rows", "steps_of"]

Leaf: TypeAlias = Any  # a tensor of any library, or an array
Tree: TypeAlias = Any  # leaves in dictionaries, lists and tuples


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Inputs of one forward pass, and the target that its loss compares with.

    Args:
        inputs: one tensor, or a dictionary of the model's arguments.
        target: None if the inputs hold it.
        share: fraction of the step's samples.
    """

    inputs: Tree
    target: Tree
    share: float

    def mapped(self, inputs: Callable[[Leaf], Leaf], target: Callable[[Leaf], Leaf]) -> MicroBatch:
        """A copy with every leaf mapped."""
        return MicroBatch(_mapped(self.inputs, inputs), _mapped(self.target, target), self.share)


def steps_of(loader: Iterable[Tree], count: int) -> Iterator[list[Tree]]:
    """Batches of a loader, `count` per step; the last step takes the rest."""
    batches: list[Tree] = []
    for batch in loader:
        batches.append(batch)
        if len(batches) == count:
            yield batches
            batches = []
    if batches:
        yield batches


def micro_batches(batches: Sequence[Tree], count: int, parts: int) -> list[MicroBatch]:
    """A step's batches as micro-batches of about equal size.

    Args:
        batches: batches of the loader.
        count: number of micro-batches, at most the number of batches.
        parts: number of parts into which each is cut again, if memory does not suffice.

    Raises:
        InvalidType: a batch has a type that no model takes.
    """
    groups = [list(group) for group in np.array_split(np.arange(len(batches)), count) if len(group)]
    joined = [_joined([batches[place] for place in group]) for group in groups]
    trees = [tree for whole in joined for tree in _cut(whole, parts)]
    sizes = [rows(tree) for tree in trees]
    total = sum(sizes)
    return [_split(tree, size / total) for tree, size in zip(trees, sizes, strict=True)]


def placed(leaf: Leaf, mesh: gt.distributed.DeviceMesh) -> gt.Tensor:
    """A tensor of a batch on the workers of a mesh [data, tensor], cut into equal parts of its
    rows.
    """
    tensor = gt.as_tensor(leaf)
    if mesh.size() == 1 and not mesh.ranks[0]:
        return tensor
    cut = gt.distributed.Shard(0) if tensor.ndim else gt.distributed.Replicate()
    layout = gt.distributed.Layout(mesh, tensor.shape, placements=[cut, gt.distributed.Replicate()])
    return gt.distribute(tensor, layout)


def rows(tree: Tree) -> int:
    """Number of samples in a batch."""
    while isinstance(tree, Mapping | list | tuple):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return len(tree)


# ---- trees ----


def _mapped(tree: Tree, function: Callable[[Leaf], Leaf]) -> Tree:
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(value, function) for value in tree])
    return function(tree)


def _joined(trees: Sequence[Tree]) -> Tree:
    """Batches concatenated along their first dimension."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {key: _joined([tree[key] for tree in trees]) for key in first}
    if isinstance(first, list | tuple):
        return [_joined(parts) for parts in zip(*trees, strict=True)]
    return _leaf(first) if len(trees) == 1 else np.concatenate([_leaf(tree) for tree in trees])


def _leaf(value: Leaf) -> np.ndarray[Any, Any]:
    """The numbers of a tensor on the client."""
    tensor = value.detach() if hasattr(value, "detach") else value
    array = tensor.numpy() if hasattr(tensor, "numpy") else np.asarray(tensor)
    if array.dtype == object or array.dtype.kind in "USMm" or not array.ndim:
        raise InvalidType(
            f"a batch holds {type(value).__name__}, and a model takes tensors whose first "
            "dimension counts the samples; let the loader's collate_fn make some"
        )
    return array


def _cut(tree: Tree, parts: int) -> list[Tree]:
    """The tree cut into at most `parts` parts along the first dimension; none is empty."""
    if parts == 1:
        return [tree]
    places = np.array_split(np.arange(rows(tree)), parts)
    bounds = [(part[0], part[-1]) for part in places if len(part)]
    return [_mapped(tree, _rows_of(first, last + 1)) for first, last in bounds]


def _rows_of(start: int, end: int) -> Callable[[Leaf], Leaf]:
    return lambda array: array[start:end]


def _split(tree: Tree, share: float) -> MicroBatch:
    """The inputs of the model and the target of the loss in one batch.

    Raises:
        InvalidType: The batch has more than two parts.
    """
    if isinstance(tree, Mapping):
        return MicroBatch(tree, None, share)
    if isinstance(tree, list) and len(tree) == 1:
        tree = tree[0]
    if not isinstance(tree, list):
        if tree.ndim != 2 or tree.dtype.kind not in "iu":
            raise InvalidType(
                f"a batch of one tensor is tokens [b, t]; this one has shape {tree.shape} and "
                f"dtype {tree.dtype}. Let the loader yield (inputs, target), or a dictionary"
            )
        return MicroBatch(tree[:, :-1], tree[:, 1:], share)  # [b, t - 1]: each token's next one
    if len(tree) != 2:
        raise InvalidType(
            f"a batch has {len(tree)} parts; it may be (inputs, target), tokens, or a dictionary"
        )
    return MicroBatch(tree[0], tree[1], share)
