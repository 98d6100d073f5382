"""Placement of a model's parameters, and of its modules on workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import gt
from gt.distributed import DeviceMesh, Layout, Replicate, Shard
from gt.guava import stages, tensor_rules
from gt.guava.library import Library, Model, Value
from gt.guava.split import Split
from gt.guava.stages import Stage
from gt.guava.tensor_rules import Cut

__all__ = ["meshes", "place", "scopes"]

SIGNAL = "guava_stage"


def meshes(split: Split, workers: Sequence[int]) -> list[DeviceMesh]:
    """The mesh [data, tensor] of each stage.

    Args:
        split: division of the workers.
        workers: indexes of the workers.
    """
    return [
        DeviceMesh(
            (split.data, split.tensor),
            [workers[place] for place in split.workers_of(stage)],
            names=("data", "tensor"),
        )
        for stage in range(split.stages)
    ]


def place(
    model: Model, library: Library, stage_meshes: Sequence[DeviceMesh], parts: Sequence[Stage]
) -> None:
    """Give each parameter and buffer its layout."""
    tensor = stage_meshes[0].size(1)
    cuts = tensor_rules.cuts(model) if tensor > 1 else {}
    owners = {path: number for number, part in enumerate(parts) for path in part.paths}
    with library.module.no_grad():
        for path, value in _tensors(model):
            mesh = stage_meshes[_stage_of(path, owners)]
            placed = gt.distribute(library.leave(value.detach()), _layout(mesh, value, cuts, path))
            value.data = library.enter(placed)


@contextlib.contextmanager
def scopes(
    model: Model, stage_meshes: Sequence[DeviceMesh], parts: Sequence[Stage]
) -> Iterator[None]:
    """Inside the block, each stage's modules run on the stage's workers."""
    if len(parts) == 1:
        yield
        return
    names = [f"{SIGNAL}{number}" for number in range(len(stage_meshes))]
    hooks = stages.within(model, parts, names)
    for name, mesh in zip(names, stage_meshes, strict=True):
        gt.register_config(name, gt.SignalConfig(workers=list(mesh.ranks)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for name in names:
            gt.register_config(name, None)


def _tensors(model: Model) -> Iterator[tuple[str, Value]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _stage_of(path: str, owners: Mapping[str, int]) -> int:
    """The stage of the module that contains a parameter; the first if no module does."""
    names = path.split(".")
    prefixes = (".".join(names[:length]) for length in range(len(names), -1, -1))
    return next((owners[prefix] for prefix in prefixes if prefix in owners), 0)


def _layout(mesh: DeviceMesh, value: Value, cuts: Mapping[str, Cut], path: str) -> Layout:
    cut = cuts.get(path)
    along = Replicate() if cut is None else Shard(cut.dim, cut.blocks)
    return Layout(mesh, tuple(value.shape), placements=[Replicate(), along])
