"""PyTorch's tensor around one of GT's: `MuxTensor`.

It holds no elements: sizes and strides are those of the GT tensor in `value`, which every operator
reads or writes. Autograd sees a tensor of the device `mux`, and calls `__torch_dispatch__` with
what is left of a program below its level.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch

from gt import _core
from gt.errors import InvalidType
from gt.tensors import interop
from gt.torch import conversions, storages
from gt.torch.elements import DEVICE_TYPE, TORCH_DTYPES

Dispatch = Callable[[Any, Sequence[object], Mapping[str, object] | None], object]

_make = torch.Tensor._make_wrapper_subclass  # noqa: SLF001 - PyTorch's constructor for subclasses
# PyTorch's property, which MuxTensor overrides.
_data = cast("Any", torch._C.TensorBase.data)  # noqa: SLF001


class MuxTensor(torch.Tensor):
    """A tensor of the device `mux`: PyTorch's face of a GT tensor."""

    value: _core.Tensor
    # Runs an operator; `install` sets it, for it is made of this class.
    run: ClassVar[Dispatch]
    home: ClassVar[torch.device]
    # Device that a saved tensor names; None for `mux`.
    saved_device: ClassVar[str | None] = None

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment] # noqa: SLF001

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # PyTorch's is of any arguments
        cls,
        func: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return MuxTensor.run(func, args, kwargs)

    __tensor_unflatten__ = conversions.Remake()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """No tensors of PyTorch's are inside."""
        return [], None

    def __coerce_same_metadata_as_tangent__(self, *_: object) -> torch.Tensor:
        """Returns itself: a compiled backward pass was traced with plain tensors of the device."""
        return self

    @property
    def data(self) -> torch.Tensor:
        """A tensor of this memory unknown to autograd: no backward pass minds writes to it."""
        shown: torch.Tensor = _data.__get__(self)
        return shown

    @data.setter
    def data(self, source: torch.Tensor) -> None:
        _data.__set__(self, source)  # refuses tensors of other devices
        if isinstance(source, MuxTensor):
            self.value = source.value

    def data_ptr(self) -> int:
        """A number in place of the first element's address: different for different memory."""
        return _core.memory_address(self.value) + self.value.storage_offset() * self.itemsize

    def untyped_storage(self) -> torch.UntypedStorage:
        """Address and size of the memory, not what it holds."""
        return storages.storage_of(self.value, self.itemsize)

    def tolist(self) -> Any:  # noqa: ANN401 - numbers, or nested lists of them
        """The elements as Python's numbers."""
        return self.value.tolist()

    def __format__(self, format_spec: str) -> str:
        """A number's of a tensor that has no dimensions."""
        if self.ndim == 0:
            return format(self.value.item(), format_spec)
        return object.__format__(self, format_spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        if id(self) in memo:
            copied: torch.Tensor = memo[id(self)]
            return copied
        new = wrap(copy.deepcopy(self.value, memo))
        new.requires_grad_(self.requires_grad)
        memo[id(self)] = new
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        others = {name: entry for name, entry in self.__dict__.items() if name != "value"}
        new.__dict__.update(copy.deepcopy(others, memo))
        return new

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickles a copy on the host; loading asks for its device (`map_location`)."""
        if self._is_parameter:
            rebuild = torch._utils._rebuild_parameter  # noqa: SLF001 - as Parameter itself
            return rebuild, (self.detach(), self.requires_grad, OrderedDict())
        host = interop.to_torch(self.value)
        memory = storages.saved(host, self.saved_device or DEVICE_TYPE)
        typed = torch.TypedStorage(wrap_storage=memory, dtype=self.dtype, _internal=True)  # type: ignore[no-untyped-call]
        hooks: OrderedDict[int, object] = OrderedDict()
        arguments = (typed, 0, self.shape, host.stride(), self.requires_grad, hooks)
        return torch._utils._rebuild_tensor_v2, arguments  # noqa: SLF001

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override] # noqa: ANN401
        printing: Any = torch._tensor_str  # noqa: SLF001 - PyTorch's, which is untyped
        if tensor_contents is None:
            host = interop.to_torch(self.value)
            text = printing._tensor_str(host, len("tensor("))  # noqa: SLF001
            tensor_contents = text if host.numel() else "[]"
        shown: str = printing._str(self, tensor_contents=tensor_contents)  # noqa: SLF001
        rest = shown.rpartition("MuxTensor(")[2]
        if not self._is_parameter:
            return f"tensor({rest}"
        return f"Parameter containing:\ntensor({rest.removesuffix(')')}"

    @property
    def _is_parameter(self) -> bool:
        return getattr(self, "_is_param", False)

    def numpy(self, *, force: bool = False) -> Any:  # noqa: ANN401 - numpy's array
        """An array of the host, where `force` asks for a copy.

        Raises:
            TypeError: it does not.
        """
        if force:
            return self.detach().cpu().numpy()
        try:
            return torch.Tensor.numpy(self)  # which a mode may answer, as under `gt run`
        except RuntimeError as error:
            if "subclasses" not in str(error):
                raise
            text = (
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        raise TypeError(text)


def wrap(value: _core.Tensor) -> MuxTensor:
    """PyTorch's tensor of the same memory as a GT tensor: writes to one show in the other.

    Autograd of GT's does not reach into PyTorch's: the tensor is a leaf without a gradient.

    Raises:
        InvalidType: Not a GT tensor.
    """
    if not isinstance(cast("object", value), _core.Tensor):
        raise InvalidType(f"wrap(): expected gt.Tensor, got {type(value).__name__}")
    if value.requires_grad:
        value = value.detach()
    return of_value(value)


def of_value(value: _core.Tensor) -> MuxTensor:
    """`wrap` of a tensor that GT's autograd does not know."""
    result = _make(
        MuxTensor,
        value.shape,
        value.stride(),
        value.storage_offset(),
        dtype=TORCH_DTYPES[value.dtype],
        device=MuxTensor.home,
    )
    result.value = value
    return result


def unwrap(tensor: torch.Tensor) -> _core.Tensor:
    """The GT tensor of the same memory as one of the device `mux`.

    Raises:
        InvalidType: A tensor of another device, or none.
    """
    if not isinstance(tensor, MuxTensor):
        place = getattr(tensor, "device", "no device")
        kind = type(tensor).__name__
        raise InvalidType(f"unwrap(): expected a tensor of {DEVICE_TYPE}, got {kind} of {place}")
    return tensor.value


def become(tensor: MuxTensor, value: _core.Tensor) -> MuxTensor:
    """`tensor` shows `value` from now on, of whatever sizes."""
    _data.__set__(tensor, of_value(value))
    tensor.value = value
    return tensor
