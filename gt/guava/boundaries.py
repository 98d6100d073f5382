"""Outputs of stages: shape, mean and largest value for LOG_ACT, whole tensors for
ALLOW_ACT_REUSE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gt.guava.library import Model, Value
from gt.guava.stages import Stage

__all__ = ["ActivationCache", "Boundaries"]


class Boundaries:
    """Latest output of each stage's last module; of the model itself if there is one stage.

    Args:
        model: model with the modules to watch.
        parts: stages of the model.
    """

    def __init__(self, model: Model, parts: Sequence[Stage]) -> None:
        self._outputs: dict[str, Value] = {}
        self._hooks = _watched(model, parts, self._take)

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def lines(self) -> list[str]:
        """A line for each output; reads the values."""
        return [
            f"{name} puts out {tuple(value.shape)}: mean {value.float().mean().item():.4g}, "
            f"max {value.float().max().item():.4g}"
            for name, value in self._outputs.items()
        ]

    def _take(self, stage: int, output: Value) -> None:
        self._outputs[f"stage {stage}"] = output


class ActivationCache:
    """Outputs of each stage but the last in the latest steps; they stay on the stages' workers.

    Args:
        model: model with the modules to watch.
        parts: stages of the model.
        steps: number of steps to keep.
    """

    def __init__(self, model: Model, parts: Sequence[Stage], steps: int) -> None:
        self._steps: deque[list[Value]] = deque(maxlen=steps)
        self._step: list[Value] = []
        self._hooks = _watched(model, parts[:-1], self._take)

    def close(self) -> None:
        """Remove the hooks; the stored outputs stay."""
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """Begin a step, possibly again."""
        self._step = []

    def end(self) -> None:
        """End a step."""
        self._steps.append(self._step)

    def __len__(self) -> int:
        """Number of steps stored."""
        return len(self._steps)

    def __iter__(self) -> Iterator[list[Value]]:
        """The activations of each step, in the order in which they were computed."""
        return iter(self._steps)

    def _take(self, _stage: int, output: Value) -> None:
        self._step.append(output)


def _watched(model: Model, parts: Sequence[Stage], take: Callable[[int, Value], None]) -> list[Any]:
    """Hooks that pass on each stage's output, with the stage's number."""
    modules = dict(model.named_modules())
    return [
        modules[part.paths[-1]].register_forward_hook(_hook(number, take))
        for number, part in enumerate(parts)
    ]


def _hook(number: int, take: Callable[[int, Value], None]) -> Callable[..., None]:
    def hook(_module: object, _arguments: object, output: Any) -> None:  # noqa: ANN401 - a hook's
        while isinstance(output, list | tuple) and output:
            output = output[0]
        if hasattr(output, "detach"):
            take(number, output.detach())

    return hook
