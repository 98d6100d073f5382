"""Tensors of other libraries: PyTorch's, and those with DLPack. All conversions copy.

torch is imported only on request: by `to_torch`, and for a checkpoint of PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.compat import torch_imports
from gt.composite.casts import cast
from gt.errors import InvalidType, InvalidValue, NotSupported
from gt.tensors.conversion import Data, Recorded
from gt.tensors.creation import as_tensor, from_numpy, tensor
from gt.tensors.devices import check_device

if TYPE_CHECKING:
    import types

__all__ = ["asarray", "from_dlpack", "from_torch", "frombuffer", "to_torch"]

CPU = (1, 0)  # DLPack's kind and number of the device


def from_torch(tensor: Any) -> Tensor:  # noqa: ANN401 - torch is not imported here
    """A tensor with a copy of a torch tensor, in its dtype; it belongs to no graph.

    Raises:
        InvalidType: it is not a torch tensor.
    """
    if not isinstance(tensor, Recorded) or isinstance(tensor, Tensor):
        raise InvalidType(f"from_torch(): expected torch.Tensor, got {type(tensor).__name__}")
    return as_tensor(tensor)  # type: ignore[arg-type] # PyTorch's tensor converts to numpy


def to_torch(tensor: Any) -> Any:  # noqa: ANN401 - torch is not imported here
    """A torch tensor with a copy of `tensor`, in its dtype, on the CPU; it belongs to no graph.

    Args:
        tensor: A tensor, or a dictionary, list or tuple of them, such as a state_dict(), which
            becomes a plain one with torch's tensors; other entries are kept.

    Raises:
        InvalidType: It is neither.
        NotSupported: torch is not installed.
    """
    if isinstance(tensor, Mapping):
        return {name: _or_itself(value) for name, value in tensor.items()}
    if isinstance(tensor, list | tuple):
        return type(tensor)([_or_itself(value) for value in tensor])
    if not isinstance(tensor, Tensor):
        raise InvalidType(f"to_torch(): expected a tensor, got {type(tensor).__name__}")
    torch = imported_torch("to_torch")
    values = tensor.detach()
    if values.dtype == _core.bfloat16:
        return torch.from_numpy(values.float().numpy().copy()).to(torch.bfloat16)
    return torch.from_numpy(np.array(values.numpy()))


def _or_itself(value: object) -> object:
    return to_torch(value) if isinstance(value, Tensor | Mapping | list | tuple) else value


def imported_torch(purpose: str) -> types.ModuleType:
    """PyTorch, if it is installed.

    Args:
        purpose: the feature that needs it, for the error.

    Raises:
        NotSupported: it is not installed, or must not be loaded.
    """
    if torch_imports.is_installed():
        raise NotSupported(
            f"{purpose}: needs PyTorch itself, and `import torch` is answered by GT here; "
            "`gt run` without --native runs the program with PyTorch's own"
        )
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise NotSupported(f"{purpose}: PyTorch is not installed here") from None


def from_torch_nested(value: object) -> object:
    """Dictionaries, lists and tuples of torch tensors with GT's in their place."""
    if isinstance(value, Recorded) and not isinstance(value, Tensor):
        return as_tensor(value)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        items = [(key, from_torch_nested(entry)) for key, entry in value.items()]
        return type(value)(items) if type(value) is not dict else dict(items)  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        entries = [from_torch_nested(entry) for entry in value]
        named = isinstance(value, tuple) and getattr(value, "_fields", None) is not None
        return type(value)(*entries) if named else type(value)(entries)  # type: ignore[arg-type]
    return value


def from_dlpack(
    ext_tensor: Any,  # noqa: ANN401 - any library's
    *,
    device: object = None,
    copy: bool | None = None,
) -> Tensor:
    """A tensor with a copy of another library's array, by DLPack.

    Args:
        ext_tensor: An object with `__dlpack__`, or a DLPack capsule of memory on the host.
        device: Accepted without effect.
        copy: False is refused: nothing can be shared.

    Raises:
        InvalidType: it has no `__dlpack__`, or a dtype that GT lacks.
        InvalidValue: `copy=False`.
    """
    check_device(device, "from_dlpack")
    if copy is False:
        raise InvalidValue("from_dlpack(): copy=False cannot be: what GT takes is copied")
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.detach().clone()
    if isinstance(ext_tensor, Recorded):
        return from_torch(ext_tensor)
    if type(ext_tensor).__name__ == "PyCapsule":  # the result of the older `to_dlpack`
        ext_tensor = _Capsule(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        kind = type(ext_tensor).__name__
        raise InvalidType(f"from_dlpack(): expected an object with __dlpack__, got {kind}")
    return from_numpy(np.from_dlpack(ext_tensor))


class _Capsule:
    """The DLPack methods that numpy calls, around a bare capsule; its memory is the host's."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def dlpack(self: Tensor, **options: Any) -> object:  # noqa: ANN401 - DLPack's keywords
    """A DLPack capsule of a copy on the host: `torch.from_dlpack(x)`, `np.from_dlpack(x)`.

    Raises:
        BufferError: the tensor requires a gradient, or has a dtype that numpy lacks (bfloat16).
    """
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.dtype == _core.bfloat16:
        raise BufferError("__dlpack__: bfloat16 cannot be exported; cast it to float32")
    options.pop("stream", None)  # for GPUs; the exported copy is on the host
    return np.array(self.numpy()).__dlpack__(**options)


def dlpack_device(self: Tensor) -> tuple[int, int]:  # noqa: ARG001 - every tensor's
    """The host, on which the exported copy is."""
    return CPU


def asarray(
    obj: Data,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor: a tensor shares its value, other data are copied.

    Args:
        obj: A tensor, numbers, nested lists of them, or another library's array.
        dtype: Target dtype; a different one casts.
        device: Accepted without effect.
        copy: True copies tensors, too; False refuses anything that would be copied.
        requires_grad: Whether backward() fills the grad of the result; None takes it from `obj`.

    Raises:
        InvalidValue: `copy=False` for data that cannot be shared.
    """
    check_device(device, "asarray")
    if not isinstance(obj, Tensor):
        if copy is False:
            raise InvalidValue("can't alias arbitrary sequence into a tensor.")
        return tensor(obj, dtype=dtype).requires_grad_(bool(requires_grad))
    out = obj if dtype is None else cast(obj, dtype)
    if copy is False and out is not obj:
        raise InvalidValue("can't alias tensor with a different dtype")
    out = out.clone() if copy and out is obj else out
    if requires_grad:
        return out if out.requires_grad else out.detach().requires_grad_()
    return out.detach() if requires_grad is False and out.requires_grad else out


def frombuffer(
    buffer: Any,  # noqa: ANN401 - what numpy takes
    *,
    dtype: _core.dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor [n] with a copy of the bytes of `buffer`.

    Args:
        buffer: An object with Python's buffer interface.
        dtype: Dtype of the elements.
        count: Number of elements; -1 for all.
        offset: Number of bytes before the first one.
        requires_grad: Whether backward() fills the grad of the result.
    """
    array = np.frombuffer(buffer, dtype=np.dtype(dtype.name), count=count, offset=offset)
    return from_numpy(array.copy()).requires_grad_(requires_grad)


def array_namespace(self: Tensor, *, api_version: str | None = None) -> object:  # noqa: ARG001
    """`gt.array_api`: functions by the names and arguments of the Python array API standard.

    Raises:
        ValueError: the edition is later than that of the module.
    """
    namespace = importlib.import_module("gt.array_api")
    if api_version is not None and api_version > namespace.__array_api_version__:
        raise InvalidValue(
            f"__array_namespace__: edition {api_version} is not here, "
            f"{namespace.__array_api_version__} is"
        )
    return namespace


def install() -> None:
    """Attaches the methods of DLPack and of the array API to the tensor class."""
    setattr(Tensor, "__array_namespace__", array_namespace)  # noqa: B010
    setattr(Tensor, "__dlpack__", dlpack)  # noqa: B010 - the stub calls them methods
    setattr(Tensor, "__dlpack_device__", dlpack_device)  # noqa: B010
