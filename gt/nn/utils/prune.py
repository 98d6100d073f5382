"""Pruning: a parameter `weight` becomes `weight_orig` times the buffer `weight_mask`.

A hook computes the pruned value before each forward; `remove` makes it permanent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.nn.module import Module
from gt.nn.utils.convert_parameters import parameters_to_vector
from gt.nn.utils.pruning_base import BasePruningMethod, PruningContainer, find
from gt.nn.utils.pruning_methods import (
    Amount,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    RandomStructured,
    RandomUnstructured,
)

T = TypeVar("T", bound=Module)

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


def identity(module: T, name: str) -> T:
    """Make the mask of `module.name` without pruning anything."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: T, name: str, amount: Amount) -> T:
    """Prune elements of `module.name` at random: a number, or a fraction of those left."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: T, name: str, amount: Amount, importance_scores: Tensor | None = None
) -> T:
    """Prune the elements of `module.name` with the smallest absolute values, or scores."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: T, name: str, amount: Amount, dim: int) -> T:
    """Prune channels of `module.name` along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: T,
    name: str,
    amount: Amount,
    n: float | str,
    dim: int,
    importance_scores: Tensor | None = None,
) -> T:
    """Prune the channels of `module.name` along `dim` with the smallest norm `n`."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,  # noqa: ANN401 - the method's
) -> None:
    """Prune several parameters as one vector.

    Args:
        parameters: pairs of a module and a name.
        pruning_method: an unstructured method.
        importance_scores: scores by such a pair, in place of the values.
        kwargs: arguments of the method.

    Raises:
        TypeError: there are no pairs, the scores are no dictionary, or the method is structured.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, dict | None):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs, scores = list(parameters), importance_scores or {}
    tensors = [cast("Tensor", getattr(module, name)).detach() for module, name in pairs]
    importance = parameters_to_vector(
        scores.get(pair, tensor).detach() for pair, tensor in zip(pairs, tensors, strict=True)
    )
    masks = parameters_to_vector(
        cast("Tensor", getattr(module, f"{name}_mask", gt.ones_like(tensor)))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    )
    container, method = PruningContainer(), pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    mask = container.compute_mask(importance, masks)
    start = 0
    for (module, name), tensor in zip(pairs, tensors, strict=True):
        end = start + tensor.numel()
        custom_from_mask(module, name, mask[start:end].reshape(tensor.shape))
        start = end


def custom_from_mask(module: T, name: str, mask: Tensor) -> T:
    """Prune `module.name` where `mask`, of its shape, is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: T, name: str) -> T:
    """Make the pruned values of `module.name` permanent, without mask and hook.

    Raises:
        ValueError: it is not pruned.
    """
    if (entry := find(module, name)) is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    key, method = entry
    method.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """True if a parameter of the module or of one below it is pruned."""
    hooks = (hook for below in module.modules() for hook in below._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
