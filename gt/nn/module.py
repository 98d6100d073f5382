"""Module: a tree of parameters, buffers and child modules with a forward method.

What is done with its tables is below it and knows no modules: state dictionaries in state.py, hooks
in hooks.py, walks in listing.py, layouts in placing.py. Nothing here emits instructions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import gt
from gt._core import Tensor
from gt.composite.casts import target_dtype
from gt.config.rules import Rule
from gt.config.scopes import rules_in_force
from gt.devices import check_device
from gt.nn import listing, placing, state
from gt.nn.global_hooks import BUFFER, MODULE, PARAMETER, at_registration, hooks_are_there
from gt.nn.hooked import TABLES, Hooked
from gt.nn.hooked_call import call_hooked
from gt.nn.listing import ParameterListing
from gt.nn.names import check_name, typename
from gt.nn.parameter import Parameter

Self = TypeVar("Self", bound="Module")  # typing.Self is Python 3.11's

_ABSENT = object()


class Module(Hooked):
    """The base of layers and models: assign parameters and modules, and override `forward`."""

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]  # buffers that state_dict leaves out
    _layout_rules: tuple[Rule, ...] = ()  # that gave parameters here and below their layouts
    _orientation = "[in, out]"  # how it stores its own weights: `[out, in]`, or `table`

    def __init__(self) -> None:
        for name, value in (
            ("training", True),
            ("_parameters", {}),
            ("_buffers", {}),
            ("_modules", {}),
            ("_non_persistent_buffers_set", set()),
            *((table, {}) for table in TABLES),
        ):
            object.__setattr__(self, name, value)

    # ---- calling ----

    def _no_forward(self, *inputs: object) -> object:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    forward: Callable[..., Any] = _no_forward

    def _call(self, *args: object, **kwargs: object) -> object:
        if rules_in_force and rules_in_force[0] is not self._layout_rules:
            self._redistribute(rules_in_force[0], mark=rules_in_force[0])
        if not (
            self._forward_pre_hooks
            or self._forward_hooks
            or self._backward_pre_hooks
            or self._backward_hooks
            or hooks_are_there()
        ):
            return self.forward(*args, **kwargs)
        return call_hooked(self, self.forward, args, kwargs)

    __call__: Callable[..., Any] = _call

    # ---- registering ----

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add `param` under `name`; None keeps the name free for later."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        check_name("parameter", name, taken=self._is_taken(name, self._parameters))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        self._parameters[name] = at_registration(PARAMETER, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves and is saved with the module but is not trained.

        Args:
            name: The attribute's name.
            tensor: The value; None keeps the name free for later.
            persistent: Whether state_dict contains it.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        check_name("buffer", name, taken=self._is_taken(name, self._buffers))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        self._buffers[name] = at_registration(BUFFER, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add `module` as a child under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        check_name("module", name, taken=self._is_taken(name, self._modules))
        self._modules[name] = at_registration(MODULE, self, name, module)

    add_module = register_module

    def _is_taken(self, name: str, table: Mapping[str, object]) -> bool:
        return name not in table and getattr(self, str(name), _ABSENT) is not _ABSENT

    # ---- attributes ----

    def __getattr__(self, name: str) -> Tensor | Module | None:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table)
            if entries is not None and name in entries:
                value: Tensor | Module | None = entries[name]
                return value
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        tables = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in tables:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, keep=self._parameters)
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in tables:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, keep=self._modules)
            self._modules[name] = at_registration(MODULE, self, name, value)
        elif "_parameters" in tables and name in self._parameters:
            self._assign(name, value, "parameter", "torch.nn.Parameter or None expected")
        elif "_modules" in tables and name in self._modules:
            self._assign(name, value, "child module", "torch.nn.Module or None expected")
        elif "_buffers" in tables and name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                self._assign(
                    name, value, "buffer", "torch.nn.Buffer, torch.Tensor or None expected"
                )
            tensor = value if isinstance(value, Tensor) else None
            self._buffers[name] = at_registration(BUFFER, self, name, tensor)
        else:
            object.__setattr__(self, name, value)

    def _assign(self, name: str, value: object, kind: str, expected: str) -> None:
        if value is not None:
            raise TypeError(f"cannot assign '{typename(value)}' as {kind} '{name}' ({expected})")
        table: dict[str, Any] = self._parameters if kind == "parameter" else self._modules
        table[name] = None

    def _forget(self, name: str, keep: Mapping[str, object]) -> None:
        for table in (self.__dict__, self._parameters, self._buffers, self._modules):
            if table is not keep:
                table.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        tables: tuple[dict[str, Any], ...] = (self._parameters, self._buffers, self._modules)
        for table in tables:
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    # ---- listing ----

    def parameters(self, recurse: bool = True) -> ParameterListing:
        """All parameters; may be looped over again, has a length, and answers next()."""
        return ParameterListing(lambda: self.named_parameters(recurse=recurse))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and the modules below."""
        owners = self._owners(prefix, recurse=recurse, unique=remove_duplicate)
        tables = ((name, owner._parameters) for name, owner in owners)
        return listing.members(tables, unique=remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) of this module and the modules below."""
        owners = self._owners(prefix, recurse=recurse, unique=remove_duplicate)
        tables = ((name, owner._buffers) for name, owner in owners)
        return listing.members(tables, unique=remove_duplicate)

    def _owners(self, prefix: str, *, recurse: bool, unique: bool) -> Iterator[tuple[str, Module]]:
        """This module, and those below if `recurse`, by dotted name."""
        if recurse:
            return self.named_modules(prefix=prefix, remove_duplicate=unique)
        return iter([(prefix, self)])

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        return (child for _, child in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) directly below, each module once."""
        return listing.named_children(self._modules)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below, each once if `remove_duplicate`."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below."""
        seen: set[Module] = set() if memo is None else memo
        return listing.named_modules(
            self, lambda module: module._modules, seen, prefix, unique=remove_duplicate
        )

    def get_submodule(self, target: str) -> Module:
        """The module with this dotted name."""
        module: Module = self
        for name in target.split(".") if target else []:
            below = getattr(module, name, None)
            if below is None:
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            if not isinstance(below, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")  # noqa: TRY004 (PyTorch's class)
            module = below
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at this dotted name; `strict` asks that something is there already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")  # noqa: TRY004
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict and not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        if hasattr(owner, name) and not isinstance(getattr(owner, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with this dotted name."""
        owner, _, name = target.rpartition(".")
        module = self.get_submodule(owner)
        buffer = module._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with this dotted name."""
        owner, _, name = target.rpartition(".")
        parameter = getattr(self.get_submodule(owner), name, None)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")  # noqa: TRY004 (PyTorch's class)
        return parameter

    # ---- state ----

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, sharing their values.

        Args:
            destination: Where they are added; a new dictionary if not given.
            prefix: Stands before each name.
            keep_vars: Give the parameters themselves instead of detached aliases.
        """
        values: dict[str, Any] = OrderedDict() if destination is None else destination
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(values, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=values, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            changed = hook(self, values, prefix, {})
            values = values if changed is None else changed  # type: ignore[assignment]
        return values

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add what this module itself saves."""
        destination.update(state.collect(self._own_entries(prefix), keep_vars=keep_vars))
        if self._has_extra_state():
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def get_extra_state(self) -> Any:  # noqa: ANN401 - whatever the subclass keeps
        """What a subclass saves beside tensors; `set_extra_state` takes it back."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:  # noqa: ANN401
        """Take back what `get_extra_state` gave."""
        del state
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Module.get_extra_state

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy the values of `state_dict` into parameters and buffers.

        Args:
            state_dict: Tensors by dotted name, as state_dict() gives them.
            strict: Missing and unexpected names are errors.
            assign: Take the given tensors themselves instead of copying.

        Raises:
            RuntimeError: Names or shapes that do not fit; nothing is named twice.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        load = state.Load(dict(state_dict), assign=assign)
        owners = list(self.named_modules(remove_duplicate=False))
        for name, owner in owners:
            for hook in list(owner._load_state_dict_pre_hooks.values()):
                prefix = f"{name}." if name else ""
                missing, unexpected = load.keys
                hook(owner, load.values, prefix, {}, True, missing, unexpected, load.problems)
        for name, owner in owners:
            prefix = f"{name}." if name else ""
            load.entries(owner._own_entries(prefix))
            if owner._has_extra_state():
                load.other(f"{prefix}_extra_state", owner.set_extra_state)
        load.find_unexpected()
        for _, owner in reversed(owners):
            for hook in list(owner._load_state_dict_post_hooks.values()):
                hook(owner, load.keys)
        return load.finish(type(self).__name__, strict=strict)

    def _own_entries(self, prefix: str) -> Iterator[state.Entry]:
        """This module's own parameters and persistent buffers."""
        for name, param in self._parameters.items():
            if param is not None:
                yield state.Entry(prefix + name, self, name, param)
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield state.Entry(prefix + name, self, name, buffer)

    # ---- layouts ----

    def _stored(self) -> Iterator[placing.Stored]:
        """Each parameter once, at its first path, with the orientation of its owner's weights."""
        seen: set[int] = set()
        for prefix, owner in self.named_modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    path = listing.joined(prefix, name)
                    yield placing.Stored(path, parameter, owner._orientation)

    def _redistribute(self, rules: tuple[Rule, ...], *, mark: tuple[Rule, ...]) -> list[str]:
        """Give parameters the layouts that `rules` say; the paths of all parameters.

        Args:
            rules: of those that match the last holds.
            mark: the rules that need not be looked at again when the module is called.
        """
        stored = list(self._stored())
        placing.redistribute(stored, rules)
        for below in self.modules():
            object.__setattr__(below, "_layout_rules", mark)
        return [path for path, _, _ in stored]

    # ---- changing everything below ----

    def apply(self: Self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every module below, then with this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, convert: Callable[[Tensor], Tensor]) -> Self:
        for child in self.children():
            child._apply(convert)
        with gt.no_grad():
            for param in self._parameters.values():
                if param is not None:
                    _replace(param, convert)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = convert(buffer)
        return self

    def to(
        self: Self,
        *target: object,
        device: object = None,
        dtype: gt.dtype | type | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Cast floating-point parameters and buffers; a device is accepted and places nothing.

        Args:
            target: A device, a dtype, both in this order, or a tensor whose dtype is taken.
            device: Accepted and ignored.
            dtype: The dtype to cast to.
            non_blocking: Accepted and ignored: nothing ever waits.
        """
        del non_blocking
        check_device(device)
        dtype_target = target_dtype(target, dtype)
        if dtype_target is None:
            return self
        if not dtype_target.is_floating_point:
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype_target}"
            )
        return self._apply(lambda t: t.to(dtype_target) if t.is_floating_point() else t)

    def to_empty(self: Self, *, device: object, recurse: bool = True) -> Self:
        """Itself: nothing is on a meta device, so the values stay, which PyTorch leaves open."""
        del recurse
        check_device(device)
        return self

    def compile(self, *args: object, **options: object) -> None:
        """Nothing, as `gt.compile`: it runs eagerly as it is."""

    def cuda(self: Self, device: object = None) -> Self:
        """Itself: where values live is the dispatcher's business."""
        del device
        return self

    def cpu(self: Self) -> Self:
        """Itself: where values live is the dispatcher's business."""
        return self

    def float(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self.to(gt.float32)

    def double(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self.to(gt.float64)

    def half(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self.to(gt.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self.to(gt.bfloat16)

    def type(self: Self, dst_type: gt.dtype) -> Self:
        """Cast all parameters and buffers."""
        return self._apply(lambda t: t.to(dst_type))

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode (dropout drops) here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")  # noqa: TRY004 (PyTorch's class)
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode (dropout passes) here and below."""
        return self.train(mode=False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Say of every parameter whether backward() fills its grad."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros."""
        for param in self.parameters():
            listing.clear_gradient(param, to_none=set_to_none)

    def share_memory(self: Self) -> Self:
        """Itself: handles are shared by name, not by memory."""
        return self

    # ---- printing ----

    def extra_repr(self) -> str:
        """What stands between the parentheses of this module's line."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        own = self.extra_repr().split("\n") if self.extra_repr() else []
        below = [
            f"({name}): {listing.indented(repr(child))}" for name, child in self._modules.items()
        ]
        if len(own) == 1 and not below:
            return f"{self._get_name()}({own[0]})"
        if not own and not below:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"


def _replace(param: Parameter, convert: Callable[[Tensor], Tensor]) -> None:
    converted = convert(param.data)
    param.data = converted  # the parameter keeps its identity: optimizers hold it
    if param.grad is not None:
        requires_grad = param.grad.requires_grad
        param.grad = convert(param.grad.detach()).requires_grad_(requires_grad)
