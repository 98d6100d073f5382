"""Checkpoints: `step_N/` with the model, the optimizer and where the run stands, as safetensors.

Values are whole there, whatever their layout was, so a run goes on with any number of workers; with
as many as before to the bit.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import gt
from gt.errors import InvalidValue
from gt.guava.library import Library, Model, Value

__all__ = [
    "Position",
    "found",
    "latest",
    "load",
    "random_state",
    "save",
    "set_random_state",
]

PREFIX = "step_"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.safetensors"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """Progress of a run.

    Args:
        step: number of steps made.
        epoch: the current epoch, from 0 on.
        batches: number of batches taken from the loader in that epoch.
        epoch_random: the generators' state where the epoch began, from which its order follows.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    epoch_random: Mapping[str, Any] | None = None


def save(
    folder: Path, library: Library, model: Model, optimizer: Value, position: Position
) -> Path:
    """Write the checkpoint of a step; one that is only half written has no name."""
    target = folder / f"{PREFIX}{position.step}"
    draft = folder / f".{PREFIX}{position.step}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    gt.save(_left(dict(model.state_dict()), library), draft / MODEL)
    gt.save(_left(optimizer.state_dict(), library), draft / OPTIMIZER)
    state = {**dataclasses.asdict(position), "random": random_state()}
    gt.save(state, draft / STATE)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    return target


def load(checkpoint: Path, library: Library, model: Model, optimizer: Value) -> Position:
    """Read a checkpoint into a model and an optimizer, whose layouts stay as they are.

    Returns:
        Where the run stood; the generators go on there.
    """
    state: Any = gt.load(checkpoint / STATE)
    weights: Any = gt.load(checkpoint / MODEL)
    moments: Any = gt.load(checkpoint / OPTIMIZER)
    values = [*model.parameters(), *model.buffers()]
    layouts = [library.leave(one.detach()).layout for one in values]
    library.load(model, _entered(weights, library))
    optimizer.load_state_dict(_entered(moments, library))
    with library.module.no_grad():
        for value, layout in zip(values, layouts, strict=True):
            for one in (value, *_moments(optimizer, value)):
                one.data = library.enter(gt.distribute(library.leave(one.detach()), layout))
    set_random_state(state.pop("random"))
    return Position(**state)


def latest(folder: Path) -> Path | None:
    """The checkpoint of the most steps in a folder."""
    steps = [
        (int(number), path)
        for path in folder.glob(f"{PREFIX}*")
        if (number := path.name.removeprefix(PREFIX)).isdigit() and (path / STATE).exists()
    ]
    return max(steps)[1] if steps else None


def found(resume: str | os.PathLike[str] | None, folder: Path) -> Path | None:
    """The checkpoint that a run goes on from.

    Args:
        resume: "latest", a step's folder, or None for a new run.
        folder: where checkpoints are.

    Raises:
        InvalidValue: there is no such one.
    """
    if resume is None:
        return None
    path = latest(folder) if resume == "latest" else Path(resume)
    if path is None:
        return None
    if not (path / STATE).exists():
        raise InvalidValue(f"resume={str(resume)!r}: {path} holds no checkpoint")
    return path


# ---- random numbers ----


def random_state() -> dict[str, Any]:
    """The state of every generator that a loader or a model may draw from."""
    version, words, gauss = random.getstate()
    kind, key, place, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - users' loaders do
    state: dict[str, Any] = {
        "gt": gt.get_rng_state().tolist(),
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(key).tolist(), place, has_gauss, cached],
    }
    torch = sys.modules.get("torch")
    return state if torch is None else {**state, "torch": torch.get_rng_state().tolist()}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Let every generator go on where `random_state` was taken."""
    gt.set_rng_state(gt.tensor(state["gt"], dtype=gt.uint8))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, key, place, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(key, np.uint32), place, has_gauss, cached))  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


def resumed(loader: Iterable[Any], count: int, begin: Mapping[str, Any]) -> Iterator[Any]:
    """The batches of an epoch that follow those which it had before its checkpoint.

    A loader draws its order where an epoch begins, so the generators stand there while the batches
    that were taken are drawn again. After it they go on where the checkpoint was written.
    """
    now = random_state()
    set_random_state(begin)
    batches = iter(loader)
    for _ in range(count):
        next(batches, None)
    set_random_state(now)
    return batches


# ---- trees of tensors ----


def _moments(optimizer: Value, value: Value) -> list[Value]:
    """State that an optimizer keeps of a parameter in its shape, so that both have one layout."""
    kept = optimizer.state[value].values() if value in optimizer.state else ()
    return [
        one for one in kept if getattr(one, "shape", None) == value.shape
        and one.device.type == value.device.type
    ]  # fmt: skip


def _left(tree: Any, library: Library) -> Any:  # noqa: ANN401 - of any form
    """The tree with GT's tensors for the library's."""
    if isinstance(tree, Mapping):
        return {key: _left(value, library) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_left(value, library) for value in tree]
    if not hasattr(tree, "detach"):
        return tree
    on_gt = isinstance(tree, gt.Tensor) or tree.device.type == library.device
    return library.leave(tree.detach()) if on_gt else gt.from_torch(tree.detach())


def _entered(tree: Any, library: Library) -> Any:  # noqa: ANN401 - of any form
    """The tree with the library's tensors for GT's; PyTorch's own are on the CPU, as its optimizers
    ask.
    """
    if isinstance(tree, Mapping):
        return {key: _entered(value, library) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_entered(value, library) for value in tree]
    if not isinstance(tree, gt.Tensor):
        return tree
    return tree if library.module is gt else gt.to_torch(tree)
