"""The two libraries that a model may use: GT's own modules, and PyTorch's on GT's device.

Training code is the same for both; the differences, such as how a tensor enters the library, are
data.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

import gt
from gt.errors import InvalidType

__all__ = ["Library", "Model", "Value", "library_of"]

Model: TypeAlias = Any  # a gt.nn.Module or a torch.nn.Module: torch is not imported here
Value: TypeAlias = Any  # a tensor of either library


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """The library of a model's tensors, losses and optimizers.

    Args:
        module: `gt` or `torch`.
        device: device type that a model is moved to and that autocast uses.
        enter: the library's tensor for one of GT's; both are the same values.
        leave: GT's tensor for one of the library's.
    """

    module: ModuleType
    device: str
    enter: Callable[[gt.Tensor], Value]
    leave: Callable[[Value], gt.Tensor]

    def moved(self, model: Model, optimizer: Value | None = None) -> Model:
        """The model moved to GT; an optimizer keeps its references to the parameters."""
        before = list(model.parameters())
        model.to(self.device)
        replaced = dict(zip(map(id, before), model.parameters(), strict=True))
        for group in optimizer.param_groups if optimizer is not None else ():
            group["params"] = [replaced.get(id(one), one) for one in group["params"]]
        return model

    def load(self, model: Model, weights: Mapping[str, Value]) -> None:
        """Copy weights into a model's parameters, which remain the same tensors."""
        model.load_state_dict(weights)

    def adamw(self, parameters: Iterable[Value], *, lr: float, weight_decay: float) -> Value:
        """The default optimizer."""
        return self.module.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)

    def cross_entropy(self, scores: Value, target: Value) -> Value:
        """The default loss: for scores [..., v] and classes [...], or probabilities [..., v]."""
        if scores.ndim == target.ndim + 1 and not target.is_floating_point():
            scores, target = scores.flatten(0, -2), target.flatten()  # [n, v] and [n]
        return self.module.nn.functional.cross_entropy(scores, target)


def library_of(model: Model) -> Library:
    """The library in which a model is written.

    Raises:
        InvalidType: the model is a module of neither.
    """
    if isinstance(model, gt.nn.Module):
        return Library(module=gt, device="gt", enter=_itself, leave=_itself)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise InvalidType(
            f"register_model: expected a torch.nn.Module or a gt.nn.Module, "
            f"got {type(model).__name__}"
        )
    front_end = importlib.import_module("gt.torch")
    return Library(module=torch, device="mux", enter=front_end.wrap, leave=front_end.unwrap)


def _itself(value: Value) -> Value:
    return value
