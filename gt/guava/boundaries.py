"""What each stage puts out, for LOG_ACT: shape, mean and largest value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt.guava.library import Model, Value
from gt.guava.stages import Stage

__all__ = ["Boundaries"]


class Boundaries:
    """The latest output of each stage's last module; of the model itself where there is one stage.

    Args:
        model: whose modules are watched.
        parts: its stages.
    """

    def __init__(self, model: Model, parts: Sequence[Stage]) -> None:
        modules = dict(model.named_modules())
        self._outputs: dict[str, Value] = {}
        self._hooks: list[Any] = []
        for number, part in enumerate(parts):
            self._watch(f"stage {number}", modules[part.paths[-1]])

    def close(self) -> None:
        """Watch no longer."""
        for hook in self._hooks:
            hook.remove()

    def lines(self) -> list[str]:
        """A line for each; reads the values."""
        return [
            f"{name} puts out {tuple(value.shape)}: mean {value.float().mean().item():.4g}, "
            f"max {value.float().max().item():.4g}"
            for name, value in self._outputs.items()
        ]

    def _watch(self, name: str, module: Model) -> None:
        def take(_module: object, _arguments: object, output: Any) -> None:  # noqa: ANN401 - a hook's
            while isinstance(output, list | tuple) and output:
                output = output[0]
            if hasattr(output, "detach"):
                self._outputs[name] = output.detach()

        self._hooks.append(module.register_forward_hook(take))
