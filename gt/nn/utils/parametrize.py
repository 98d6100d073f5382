"""Parametrizations: a module's parameter or buffer is computed from others at each read.

`register_parametrization(layer, "weight", f)` keeps the tensor as
`layer.parametrizations.weight.original`, and `layer.weight` becomes a property: `f(original)`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.nn.containers import ModuleDict, ModuleList
from gt.nn.module import Module
from gt.nn.parameter import Parameter

T = TypeVar("T", bound=Module)

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class _Cache:
    """Values computed within `cached()`, by module and name; empty outside."""

    depth = 0
    values: dict[tuple[int, str], Tensor] = {}  # noqa: RUF012 - of all modules


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within the `with`, every parametrized tensor is computed once, at its first read."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first to last, with the tensors from which they start.

    Args:
        modules: the functions, applied one after the other.
        original: the parameter or buffer; it becomes `original`, or, if a `right_inverse` returns
            several tensors, these become `original0`, `original1`, ….
        unsafe: True omits the check that shape and dtype do not change.

    Raises:
        ValueError: there are no modules, or a right inverse or result has a wrong kind, shape or
            dtype.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with gt.no_grad():
            start = self._inverse(original)
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if isinstance(start, Tensor) else len(start)
        if isinstance(start, Tensor):
            if start.dtype != dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {dtype}\nright_inverse(original).dtype: {start.dtype}"
                )
            _become(original, start)
            register(self, "original", original)
        else:
            self._register_several(start, original)
        if not unsafe:
            _check_kept(self(), "", (shape, dtype))

    def _inverse(self, original: Tensor) -> Tensor | Sequence[Tensor]:
        """The value from which the parametrization gives `original`; a step without right inverse
        counts as the identity.
        """
        start: Any = original
        for module in reversed(list(self)):
            with contextlib.suppress(NotImplementedError):
                if hasattr(module, "right_inverse"):
                    start = cast("Any", module).right_inverse(start)
        if not isinstance(start, Tensor | Sequence):
            raise ValueError(  # noqa: TRY004 - PyTorch's class
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(start).__name__}"
            )
        return start

    def _register_several(self, start: Sequence[Tensor], original: Tensor) -> None:
        for place, value in enumerate(start):
            if not isinstance(value, Tensor):
                raise ValueError(  # noqa: TRY004 - PyTorch's class
                    "'right_inverse' must return a Tensor or a Sequence of tensors "
                    f"(list, tuple...). Got element {place} of the sequence with type "
                    f"{type(value).__name__}."
                )
            if isinstance(original, Parameter):
                own: Tensor = Parameter(value.detach().clone(), original.requires_grad)
            else:
                own = value.detach().clone().requires_grad_(original.requires_grad)
            register(self, f"original{place}", own)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrized tensor becomes `value`, unrecorded.

        Raises:
            RuntimeError: a parametrization has no right inverse.
            ValueError: one returns another number of tensors or another dtype than before.
        """
        start: Any = value
        with gt.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                start = cast("Any", module).right_inverse(start)
        if self.is_tensor:
            if not isinstance(start, Tensor):
                raise ValueError(
                    f"`right_inverse` should return a tensor. Got {type(start).__name__}"
                )
            self._set("original", start, "The tensor returned by `right_inverse`")
            return
        if not isinstance(start, Sequence):
            raise ValueError(  # noqa: TRY004 - PyTorch's class
                f"'right_inverse' must return a sequence of tensors. Got {type(start).__name__}."
            )
        if len(start) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(start)}."
            )
        for place, one in enumerate(start):
            if not isinstance(one, Tensor):
                raise ValueError(  # noqa: TRY004 - PyTorch's class
                    "'right_inverse' must return a sequence of tensors. "
                    f"Got element {place} of type {type(one).__name__}."
                )
            self._set(f"original{place}", one, f"Tensor {place} returned by `right_inverse`")

    def _set(self, name: str, value: Tensor, what: str) -> None:
        original: Any = getattr(self, name)
        if value.dtype != original.dtype:
            raise ValueError(
                f"{what} has dtype {value.dtype} while `{name}` has dtype {original.dtype}"
            )
        _become(original, value)

    def originals(self) -> list[Any]:
        """The arguments of the first parametrization."""
        names = ["original"] if self.is_tensor else [f"original{n}" for n in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *rest = self
        value = first(*self.originals())
        for module in rest:
            value = module(value)
        return cast("Tensor", value)


def register_parametrization(
    module: T, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> T:
    """Compute a parameter or buffer of `module` by `parametrization` from now on.

    Args:
        module: the module; its class becomes one of its own, `ParametrizedLinear` for a Linear.
        tensor_name: name of the parameter or buffer; an already parametrized one gets one more
            step.
        parametrization: called with the tensor; its `right_inverse`, if it has one, computes the
            original that gives the present value, and makes the tensor assignable.
        unsafe: True omits the check that shape and dtype do not change.

    Raises:
        ValueError: there is no such tensor, or its shape, dtype or kind would change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parametrizations = _list_of(module, tensor_name)
        if not unsafe:
            _check_in_chain(module, tensor_name, parametrization)
        parametrizations.append(parametrization)
        parametrizations.unsafe = parametrizations.unsafe or unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    listed = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    object.__setattr__(listed, "_orientation", module._orientation)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_own_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    cast("ModuleDict", module.parametrizations)[tensor_name] = listed
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if the tensor, or with no name any tensor of the module, is parametrized."""
    lists = getattr(module, "parametrizations", None)
    if not isinstance(lists, ModuleDict):
        return False
    return len(lists) > 0 if tensor_name is None else tensor_name in lists


def remove_parametrizations(module: T, tensor_name: str, leave_parametrized: bool = True) -> T:
    """Make the tensor a parameter or buffer again.

    Args:
        module: the module; its own class goes with the last parametrization.
        tensor_name: the tensor's name.
        leave_parametrized: whether to keep the computed value instead of the original's.

    Raises:
        ValueError: the tensor is not parametrized, or has several originals, so that none is its
            value.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = _list_of(module, tensor_name)
    if listed.is_tensor:
        (original,) = listed.originals()
        if leave_parametrized:
            with gt.no_grad():
                _become(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del cast("ModuleDict", module.parametrizations)[tensor_name]
    register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without its parametrizations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: T, tensor_name: str | None = None
) -> T:
    """Parametrize `to_module` like `from_module`, with the same originals.

    Args:
        from_module: the module whose parametrizations are shared.
        to_module: the target, which also gets tensors that it lacks.
        tensor_name: name of one tensor; all if not given.
    """
    if not is_parametrized(from_module):
        return to_module
    lists = cast("ModuleDict", from_module.parametrizations)
    for name in list(lists) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(cast("Tensor", getattr(from_module, name))))
        parametrizations = _list_of(from_module, name)
        for parametrization in parametrizations:
            register_parametrization(to_module, name, parametrization)
        target = _list_of(to_module, name)
        for place, original in enumerate(parametrizations.originals()):
            setattr(
                target, "original" if parametrizations.is_tensor else f"original{place}", original
            )
    return to_module


def register(module: Module, name: str, value: Tensor) -> None:
    """`value` as a parameter if it is one, else as a buffer."""
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _list_of(module: Module, name: str) -> ParametrizationList:
    listed = cast("ModuleDict", module.parametrizations)[name]
    assert isinstance(listed, ParametrizationList), type(listed)
    return listed


def _become(tensor: Tensor, value: Tensor) -> None:
    """Give `tensor` this value; it keeps its identity, since optimizers hold it."""
    if value is not tensor:
        tensor.data = value.detach().clone()


def _check_kept(value: object, of: str, before: tuple[Sequence[int], gt.dtype]) -> None:
    """Raise unless a parametrization's result has the shape and dtype of the tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(  # noqa: TRY004 - PyTorch's class
            f"A parametrization must return a tensor. Got {type(value).__name__}."
        )
    flag = "unless the `unsafe` flag" if of else "unless `unsafe` flag"
    labels = (of, f"parametrization({of})") if of else ("unparametrized", "parametrized")
    for what, old, new in (("dtype", before[1], value.dtype), ("shape", before[0], value.shape)):
        if old != new:
            dot = "." if of else " "
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, {flag} "
                f"is enabled.\n{labels[0]}{dot}{what}: {old}\n{labels[1]}{dot}{what}: {new}"
            )


def _check_in_chain(module: Module, name: str, parametrization: Module) -> None:
    """Raise if a parametrization behind others changes shape, dtype or kind."""
    value = cast("Tensor", getattr(module, name))
    result = parametrization(value)
    _check_kept(result, f"module.{name}", (value.shape, value.dtype))
    try:
        inverse = getattr(parametrization, "right_inverse", lambda _result: value)(result)
    except NotImplementedError:
        return
    if not isinstance(inverse, Tensor):
        raise ValueError(  # noqa: TRY004 - PyTorch's class
            f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}"
        )
    pairs = (("dtype", value.dtype, inverse.dtype), ("shape", value.shape, inverse.shape))
    for what, old, new in pairs:
        if old != new:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {old}\nreturned {what}: {new}"
            )


def _give_own_class(module: Module) -> None:
    """Gives the module a subclass of its own with the properties; it can be copied, but not
    pickled.
    """
    base = type(module)

    def state_refused(_self: Module) -> None:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict()"
        )

    def copied(self: Module, memo: dict[int, Any]) -> Module:
        previous = memo.get(id(self))
        if previous is not None:
            return cast("Module", previous)
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    names: dict[str, Any] = {"__getstate__": state_refused}
    if not hasattr(base, "__deepcopy__"):
        names["__deepcopy__"] = copied
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), names)


def _property(name: str) -> property:
    """A property: a read computes the tensor, once if cached; an assignment calls the right
    inverse.
    """

    def computed(self: Module) -> Tensor:
        listed = _list_of(self, name)
        if not _Cache.depth:
            return listed()
        key = (id(self), name)
        if key not in _Cache.values:
            _Cache.values[key] = listed()
        return _Cache.values[key]

    def assigned(self: Module, value: Tensor) -> None:
        _list_of(self, name).right_inverse(value)

    return property(computed, assigned)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
