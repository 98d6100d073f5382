"""The tables of a module, for parameters, buffers and children, as its attributes.

Iterations over the tree are in tree.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from gt._core import Tensor
from gt.nn.global_hooks import BUFFER, MODULE, PARAMETER, at_registration
from gt.nn.hooked import TABLES, Hooked
from gt.nn.names import check_name, foreign, typename
from gt.nn.parameter import Buffer, Parameter

M = TypeVar("M", bound="Members[Any]")  # the class of modules

_ABSENT = object()


class Members(Hooked, Generic[M]):
    """The part of Module that registers assigned values, and finds them by name."""

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, M | None]
    _non_persistent_buffers_set: set[str]  # buffers that state_dict omits
    call_super_init = False  # whether __init__ passes its arguments on to the next class

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the next class's
        for name, value in (
            ("training", True),
            ("_parameters", {}),
            ("_buffers", {}),
            ("_modules", {}),
            ("_non_persistent_buffers_set", set()),
            *((table, {}) for table in TABLES),
        ):
            object.__setattr__(self, name, value)
        if self.call_super_init:
            super().__init__(*args, **kwargs)
        elif kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                f"'{next(iter(kwargs))}'"
            )
        elif args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in TABLES:  # the module may have been saved before it had them
            self.__dict__.setdefault(table, {})
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register `param` under `name`; None reserves the name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        check_name("parameter", name, taken=self._is_taken(name, self._parameters))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                f"(torch.nn.Parameter or None required){foreign(param)}"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        self._parameters[name] = at_registration(PARAMETER, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that moves and is saved with the module but is not trained.

        Args:
            name: The attribute's name.
            tensor: The value; None reserves the name.
            persistent: Whether state_dict contains it.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        check_name("buffer", name, taken=self._is_taken(name, self._buffers))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                f"(torch Tensor or None required){foreign(tensor)}"
            )
        self._buffers[name] = at_registration(BUFFER, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: object) -> None:
        """Register `module` as a child under `name`."""
        if module is not None and not isinstance(module, Members):
            raise TypeError(f"{typename(module)} is not a Module subclass{foreign(module)}")
        check_name("module", name, taken=self._is_taken(name, self._modules))
        self._modules[name] = cast("M | None", at_registration(MODULE, self, name, module))

    add_module = register_module

    def _is_taken(self, name: str, table: Mapping[str, object]) -> bool:
        return name not in table and getattr(self, str(name), _ABSENT) is not _ABSENT

    def __getattr__(self, name: str) -> Tensor | M | None:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table)
            if entries is not None and name in entries:
                value: Tensor | M | None = entries[name]
                return value
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        tables = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in tables:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, keep=self._parameters)
            self.register_parameter(name, value)
        elif isinstance(value, Members):
            if "_modules" not in tables:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, keep=self._modules)
            self._modules[name] = cast("M", at_registration(MODULE, self, name, value))
        elif "_parameters" in tables and name in self._parameters:
            self._assign(name, value, "parameter", "torch.nn.Parameter or None expected")
        elif "_modules" in tables and name in self._modules:
            self._assign(name, value, "child module", "torch.nn.Module or None expected")
        elif isinstance(value, Buffer) or name in tables.get("_buffers", ()):
            self._assign_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _assign_buffer(self, name: str, value: object) -> None:
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        if value is not None and not isinstance(value, Tensor):
            self._assign(name, value, "buffer", "torch.nn.Buffer, torch.Tensor or None expected")
        tensor = value if isinstance(value, Tensor) else None
        if isinstance(tensor, Buffer):
            self.register_buffer(name, tensor, tensor.persistent)
        else:
            self._buffers[name] = at_registration(BUFFER, self, name, tensor)

    def _assign(self, name: str, value: object, kind: str, expected: str) -> None:
        if value is not None:
            raise TypeError(
                f"cannot assign '{typename(value)}' as {kind} '{name}' ({expected}){foreign(value)}"
            )
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
