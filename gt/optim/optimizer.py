"""Optimizer: groups, state, saving and loading. Subclasses define the update of a step."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import gt
from gt._core import Tensor
from gt.errors import InvalidUse
from gt.nn.listing import clear_gradient
from gt.nn.names import typename
from gt.nn.state import with_layout_of
from gt.optim.entries import NUMBERS, Entries
from gt.optim.factors import Factor
from gt.optim.hooked import (
    Hooked,
    hooked,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

Group: TypeAlias = dict[str, Any]  # "params" and the options of these parameters
Params: TypeAlias = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]

HELD = {"t", "ro"}  # numbers in LBFGS's state that PyTorch holds as tensors
UNORDERED = (
    "optimizer parameters need to be organized in ordered collections, but the ordering of "
    "tensors in sets will change between runs. Please use a list instead."
)


class Optimizer(Hooked):
    """The base of all optimizers.

    Args:
        params: Parameters, (name, parameter) pairs, or groups: dictionaries with "params" and their
            own options.
        defaults: Options for groups that do not set theirs.
    """

    _entries: type[dict[str, Any]] = dict  # class of a parameter's state
    param_groups: list[Group]
    state: defaultdict[Tensor, dict[str, Any]]

    def __init__(self, params: Params, defaults: Mapping[str, object]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {typename(params)}"
            )
        self._make_hooks()
        self.defaults: dict[str, object] = dict(defaults)
        if isinstance(params, set):
            warnings.warn(
                f"{UNORDERED} This will be an error in a future release.", FutureWarning, 3
            )
        self.state = defaultdict(self._entries)  # type: ignore[arg-type] # called without any
        self.param_groups = []
        listed = list(params)
        if not listed:
            raise ValueError("optimizer got an empty parameter list")
        groups = listed if isinstance(listed[0], dict) else [{"params": listed}]
        for group in groups:
            self.add_param_group(group)  # type: ignore[arg-type]

    @hooked
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update all parameters that have a gradient.

        Args:
            closure: Evaluates the model again, calls backward() and returns the loss, which step()
                returns in turn.
        """
        loss = None
        if closure is not None:
            with gt.enable_grad():
                loss = closure()
        with gt.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            for group in self.param_groups:
                pairs = [(param, param.grad) for param in group["params"]]
                params = [param for param, grad in pairs if grad is not None]
                if params:
                    self._update(group, params, [grad for _, grad in pairs if grad is not None])
        return loss

    def _update(self, group: Group, params: list[Tensor], grads: list[Tensor]) -> None:
        """Update `params`, all of this group, by their gradients."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or fill them with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                clear_gradient(param, to_none=set_to_none)

    # ---- groups ----

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own options.

        Raises:
            TypeError: It is not a dictionary of tensors.
            ValueError: A parameter is in another group, or is no leaf, unless it retains its
                gradient or steps are differentiable.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        param_group["params"], names = _split_names(param_group["params"])
        if names:
            param_group["param_names"] = names
        for param in param_group["params"]:
            if not isinstance(param, Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, "
                    f"but one of the params is {typename(param)}"
                )
            if not (self.defaults.get("differentiable") or param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            param_group.setdefault(name, default)
        self._check_distinct(param_group)
        self.param_groups.append(param_group)

    def _check_distinct(self, param_group: Group) -> None:
        added = {id(param) for param in param_group["params"]}
        if len(added) != len(param_group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=4,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} to the optimizer"
                )
            if not added.isdisjoint(id(param) for param in group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")

    # ---- saving ----

    def state_dict(self) -> dict[str, Any]:
        """State by the parameter's index, and the groups with indices instead of parameters."""
        for hook in list(self._save_pre_hooks.values()):
            hook(self)
        places: dict[int, int] = {}
        for group in self.param_groups:
            for param in group["params"]:
                places.setdefault(id(param), len(places))
        groups = [
            {
                **{name: value for name, value in group.items() if name != "params"},
                "params": [places[id(param)] for param in group["params"]],
            }
            for group in self.param_groups
        ]
        state = {places[id(param)]: dict(entries) for param, entries in self.state.items()}
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        return self._changed(self._save_hooks, saved)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore state and options that state_dict() returned; tensors are copied.

        Raises:
            ValueError: The groups differ from this optimizer's.
        """
        state_dict = self._changed(self._load_pre_hooks, dict(state_dict))
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(
            len(new["params"]) != len(old["params"])
            for new, old in zip(saved, self.param_groups, strict=True)
        ):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        ours = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        theirs = itertools.chain.from_iterable(group["params"] for group in saved)
        by_place = dict(zip(theirs, ours, strict=True))
        # PyTorch casts all numbers except `step`: its resumed runs differ slightly from
        # uninterrupted ones.
        uncast = NUMBERS if self._entries is Entries else {"step"}
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(self._entries)  # type: ignore[arg-type] # called without any
        for place, entries in state_dict["state"].items():
            param = by_place[place]
            state[param] = self._entries()
            for name, value in entries.items():
                state[param][name] = _loaded(name, value, param, uncast)
        for group, new in zip(self.param_groups, saved, strict=True):
            group.update(
                {name: copy.deepcopy(value) for name, value in new.items() if name != "params"}
            )
        self.state = state
        for hook in list(self._load_hooks.values()):
            hook(self)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for place, group in enumerate(self.param_groups):
            text += f"\nParameter Group {place}\n"
            for name in sorted(group):
                if name != "params":
                    text += f"    {name}: {group[name]}\n"
        return text + ")"


class PerParameter(Optimizer):
    """The base of optimizers that update each parameter separately, by plain operators."""

    _entries = Entries

    def _update(self, group: Group, params: list[Tensor], grads: list[Tensor]) -> None:
        for param, grad in zip(params, grads, strict=True):
            self._update_one(group, param, -grad if group.get("maximize") else grad)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        """Update `param` by `grad`, which is negated already for `maximize`."""
        raise NotImplementedError


def check_fused(*, fused: bool | None, foreach: bool | None, differentiable: bool) -> None:
    """Raise PyTorch's error for options that it does not implement together.

    Raises:
        InvalidUse: `fused` is set with one of the others.
    """
    if fused and differentiable:
        raise InvalidUse("`fused` does not support `differentiable`")
    if fused and foreach:
        raise InvalidUse("`fused` and `foreach` cannot be `True` together.")


def check_rate(lr: float | Tensor, text: str = "Invalid learning rate") -> None:
    """Raise PyTorch's error for a negative rate, or for a tensor of several.

    Raises:
        ValueError: The error has `text` and the rate.
    """
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"{text}: {lr}")


def check_betas(betas: tuple[Factor, Factor]) -> None:
    """Raise PyTorch's error for the first of the two that is outside [0, 1).

    Raises:
        ValueError: The error names position and value.
    """
    for place, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {place}: {beta}")


def check_at_least_zero(**options: Factor) -> None:
    """Raise PyTorch's error for the first option below zero (or NaN).

    Raises:
        ValueError: The error names option and value.
    """
    names = {"momentum": "momentum value", "eps": "epsilon value"}
    names["weight_decay"] = "weight_decay value"
    for option, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {names[option]}: {value}")


def _split_names(params: object) -> tuple[list[Tensor], list[str]]:
    """The tensors, and their names if they come as (name, tensor)."""
    if isinstance(params, Tensor):
        return [params], []
    if isinstance(params, set):
        raise TypeError(UNORDERED)
    if not isinstance(params, Iterable):
        raise TypeError(
            f"optimizer can only optimize Tensors, but one of the params is {typename(params)}"
        )
    listed = list(params)
    names = [entry[0] for entry in listed if isinstance(entry, tuple)]
    if names and len(names) != len(listed):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    return [entry[1] if isinstance(entry, tuple) else entry for entry in listed], names


def _loaded(name: str, value: object, param: Tensor, uncast: AbstractSet[str]) -> object:
    if isinstance(value, list):
        return [_loaded(name, entry, param, uncast) for entry in value]
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if name in HELD:
        return value.item()
    value = value.detach().clone()
    if name in uncast:
        return value
    value = with_layout_of(value, param)
    return value.to(param.dtype) if param.is_floating_point() else value
