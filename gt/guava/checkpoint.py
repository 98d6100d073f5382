"""Checkpoints: `step_N/` with the model, the optimizer and the position of the run, as safetensors.

Values are stored whole, whatever their layout, so a run can continue with any number of workers;
with the same number, it continues bit for bit.
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
        epoch_random: state of the generators at the start of the epoch, which determines its order.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    epoch_random: Mapping[str, Any] | None = None


def save(
    folder: Path, library: Library, model: Model, optimizer: Value, position: Position
) -> Path:
    """Write the checkpoint of a step; a partly written one has no final name."""
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
        Position of the run; the generators continue from it.
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
    """The checkpoint with the most steps in a folder."""
    steps = [
        (int(number), path)
        for path in folder.glob(f"{PREFIX}*")
        if (number := path.name.removeprefix(PREFIX)).isdigit() and (path / STATE).exists()
    ]
    return max(steps)[1] if steps else None


def found(resume: str | os.PathLike[str] | None, folder: Path) -> Path | None:
    """The checkpoint from which a run continues.

    Args:
        resume: "latest", a step's folder, or None for a new run.
        folder: folder of the checkpoints.

    Raises:
        InvalidValue: The checkpoint does not exist.
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
    """State of every generator that a loader or a model may use."""
    version, words, gauss = random.getstate()
    kind, key, place, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - loaders use it
    state: dict[str, Any] = {
        "gt": gt.get_rng_state().tolist(),
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(key).tolist(), place, has_gauss, cached],
    }
    torch = sys.modules.get("torch")
    return state if torch is None else {**state, "torch": torch.get_rng_state().tolist()}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Set every generator to a state from `random_state`."""
    gt.set_rng_state(gt.tensor(state["gt"], dtype=gt.uint8))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, key, place, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(key, np.uint32), place, has_gauss, cached))  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


def resumed(loader: Iterable[Any], count: int, begin: Mapping[str, Any]) -> Iterator[Any]:
    """Batches of an epoch that follow those taken before the checkpoint.

    A loader draws its order at the start of an epoch, so the generators are set to that state and
    the earlier batches are drawn again. Then the generators continue from the checkpoint.
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
    """Optimizer state of a parameter that has its shape, so that both have one layout."""
    entries = optimizer.state[value].values() if value in optimizer.state else ()
    return [
        one for one in entries if getattr(one, "shape", None) == value.shape
        and one.device.type == value.device.type
    ]  # fmt: skip


def _left(tree: Any, library: Library) -> Any:  # noqa: ANN401 - of any form
    """The tree with the library's tensors replaced by GT's."""
    if isinstance(tree, Mapping):
        return {key: _left(value, library) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_left(value, library) for value in tree]
    if not hasattr(tree, "detach"):
        return tree
    on_gt = isinstance(tree, gt.Tensor) or tree.device.type == library.device
    return library.leave(tree.detach()) if on_gt else gt.from_torch(tree.detach())


def _entered(tree: Any, library: Library) -> Any:  # noqa: ANN401 - of any form
    """The tree with GT's tensors replaced by the library's; PyTorch's are on the CPU, as its
    optimizers expect.
    """
    if isinstance(tree, Mapping):
        return {key: _entered(value, library) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_entered(value, library) for value in tree]
    if not isinstance(tree, gt.Tensor):
        return tree
    return tree if library.module is gt else gt.to_torch(tree)
