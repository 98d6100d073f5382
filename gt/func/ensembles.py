"""`stack_module_state`: the parameters of several modules as one dictionary, for `vmap`."""

from __future__ import annotations

from collections.abc import Sequence

import gt
from gt._core import Tensor
from gt.errors import InvalidUse
from gt.nn.module import Module


def stack_module_state(
    models: Sequence[Module],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of modules of one class, stacked along a new first dimension.

    Args:
        models: all in training mode, or none of them.

    Returns:
        Parameters and buffers by name, as leaves with new values.

    Raises:
        InvalidUse: no modules are given, or they differ.
    """
    if not models:
        raise InvalidUse("stack_module_state: Expected at least one model, got 0.")
    if any(model.training != models[0].training for model in models):
        raise InvalidUse(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(model) is not type(models[0]) for model in models):
        raise InvalidUse("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([dict(model.named_parameters()) for model in models]),
        _stacked([dict(model.named_buffers()) for model in models]),
    )


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: _leaf([state[name] for state in states], name) for name in states[0]}


def _leaf(tensors: list[Tensor], name: str) -> Tensor:
    requires = tensors[0].requires_grad
    if any(x.requires_grad != requires for x in tensors):
        raise InvalidUse(f"Expected {name} from each model to have the same .requires_grad")
    return gt.stack(tensors).detach().requires_grad_(requires)
