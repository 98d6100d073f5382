"""state_dict and load_state_dict of a module; entries are handled by state.py."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from gt._core import Tensor
from gt.nn import state
from gt.nn.tree import Tree

M = TypeVar("M", bound="Saved[Any]")  # the class of modules
Metadata = dict[str, Any]


class Saved(Tree[M]):
    """The part of Module that saves and loads its state."""

    _version: int = 1  # format of the class's state: `version` in the metadata

    def state_dict(
        self,
        *args: Any,  # noqa: ANN401 - the older form: the three by position
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, sharing their values.

        Args:
            args: The next three, by position and with a warning, as PyTorch still accepts them.
            destination: Dictionary to add to; a new one if not given.
            prefix: Prefix of each name.
            keep_vars: Whether to return the parameters themselves instead of detached aliases.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
                "state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            named = {"destination": destination, "prefix": prefix, "keep_vars": keep_vars}
            named.update(zip(named, args, strict=False))
            return self.state_dict(**named)  # type: ignore[arg-type] # as the caller gave them
        values: Any = destination
        if values is None:
            values = OrderedDict()
            values._metadata = OrderedDict()
        metadata: Metadata = {"version": self._version}
        if hasattr(values, "_metadata"):
            values._metadata[prefix[:-1]] = metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(values, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=values, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            changed = hook(self, values, prefix, metadata)
            values = values if changed is None else changed
        return values  # type: ignore[no-any-return] # a dictionary, or what a hook made of it

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add the values that this module itself saves."""
        destination.update(state.collect(self._own_entries(prefix), keep_vars=keep_vars))
        if self._has_extra_state():
            destination[f"{prefix}{_EXTRA}"] = self.get_extra_state()

    def get_extra_state(self) -> Any:  # noqa: ANN401 - whatever the subclass keeps
        """State that a subclass saves beside tensors; `set_extra_state` takes it back."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:  # noqa: ANN401
        """Restore the state that `get_extra_state` returned."""
        del state
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Saved.get_extra_state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy the values of `state_dict` into parameters and buffers.

        Args:
            state_dict: Tensors by dotted name, as in the result of state_dict().
            strict: Whether missing and unexpected names are errors.
            assign: Whether to take the given tensors themselves instead of copying.

        Raises:
            RuntimeError: Names or shapes that do not match, after all that match were copied.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        versions: Mapping[str, Metadata] = getattr(state_dict, "_metadata", None) or {}
        keys = state.IncompatibleKeys([], [])
        problems: list[str] = []
        self._load(dict(state_dict), "", versions, (keys, problems), assign=assign)
        return state.finish(type(self).__name__, keys, problems, strict=strict)

    def _load(
        self,
        values: dict[str, Any],
        prefix: str,
        versions: Mapping[str, Metadata],
        found: tuple[state.IncompatibleKeys, list[str]],
        *,
        assign: bool,
    ) -> None:
        """Load this module, then those below, each with the values that begin with its prefix."""
        keys, problems = found
        metadata = {**versions.get(prefix[:-1], {}), _ASSIGN: assign}
        self._load_from_state_dict(
            values, prefix, metadata, True, keys.missing_keys, keys.unexpected_keys, problems
        )
        for name, child in self._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                own = {key: value for key, value in values.items() if key.startswith(below)}
                child._load(own, below, versions, found, assign=assign)
        for hook in list(self._load_state_dict_post_hooks.values()):
            if hook(self, keys) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Metadata,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the values of this module itself; subclasses override it to read older states.

        Args:
            state_dict: The values of this module and those below; it may be changed.
            prefix: Prefix of the names of this module's values.
            local_metadata: The saved `version`, if any.
            strict: Whether to list missing and unexpected names.
            missing_keys: List to which missing names are added.
            unexpected_keys: List to which names of no entry and no child are added.
            error_msgs: List to which messages about mismatches are added.
        """
        lists = (missing_keys, unexpected_keys, error_msgs)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(self, state_dict, prefix, local_metadata, strict, *lists)
        entries = list(self._own_entries(prefix))
        for entry in entries:
            if entry.name not in state_dict:
                if strict:
                    missing_keys.append(entry.name)
                continue
            value = state_dict[entry.name]
            assign = bool(local_metadata.get(_ASSIGN, False))
            if problem := state.load_one(entry, value, assign=assign):
                error_msgs.append(problem)
        self._load_extra_state(state_dict, prefix, missing_keys if strict else [])
        if strict:
            names = {entry.attribute for entry in entries}
            names |= {_EXTRA} if self._has_extra_state() else set()
            for key in state_dict:
                first, dot, _ = key[len(prefix) :].partition(".")
                if key.startswith(prefix) and first not in (self._modules if dot else names):
                    unexpected_keys.append(key)

    def _load_extra_state(
        self, state_dict: dict[str, Any], prefix: str, missing_keys: list[str]
    ) -> None:
        key = f"{prefix}{_EXTRA}"
        if not self._has_extra_state():
            return
        if key in state_dict:
            self.set_extra_state(state_dict[key])
        else:
            missing_keys.append(key)

    def _own_entries(self, prefix: str) -> Iterator[state.Entry]:
        """This module's own parameters and persistent buffers."""
        tables: tuple[Mapping[str, Tensor | None], ...] = (self._parameters, self._buffers)
        for table in tables:
            for name, value in table.items():
                if value is not None and name not in self._non_persistent_buffers_set:
                    yield state.Entry(prefix + name, self, name, value)


_EXTRA = "_extra_state"
_ASSIGN = "assign_to_params_buffers"  # PyTorch's key in the metadata of a load
