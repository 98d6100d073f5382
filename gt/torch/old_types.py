"""Types that make tensors, `torch.FloatTensor([1.0])` and `torch.Tensor(3, 4)`, for `gt run`.

PyTorch's own types make tensors of the host or of CUDA, and no mode of PyTorch sees their calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

NAMES = (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
)  # fmt: skip
DTYPES: dict[str, torch.dtype] = {}


class OldType:
    """Replacement of one of PyTorch's types: makes tensors of its dtype on the device."""

    def __init__(self, kind: Any, is_on_host: Callable[[], bool]) -> None:  # noqa: ANN401
        self.kind = kind  # of the host
        self.is_on_host = is_on_host
        self.dtype: torch.dtype = kind.dtype
        self.__name__: str = kind.__name__
        self.__module__ = "torch"

    def __call__(self, *args: object, **kwargs: object) -> torch.Tensor:
        """A tensor from numbers, or of a size with uninitialised elements."""
        return made(self.kind, self.is_on_host(), args, kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.dtype == self.dtype

    def __repr__(self) -> str:
        return repr(self.kind)


def made(
    kind: Callable[..., torch.Tensor],
    is_on_host: bool,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> torch.Tensor:
    """The tensor of a type of PyTorch's, uploaded unless the program prepares data on the host."""
    kwargs.pop("device", None)
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - a mode would say that all is on the device
        made = kind(*[x.cpu() if isinstance(x, MuxTensor) else x for x in args], **kwargs)
    return made if is_on_host else made.to(DEVICE_TYPE)


def dtype_of(kind: object) -> object:
    """The dtype of a type, or of its name, as programs use it for a conversion."""
    if isinstance(kind, str):
        return DTYPES.get(kind.rpartition(".")[2], kind)
    return DTYPES.get(getattr(kind, "__name__", ""), kind)


def converted(
    tensor: torch.Tensor, dtype: object = None, non_blocking: bool = False, **_: object
) -> object:
    """`Tensor.type`: only converts, since there is one device."""
    wanted = dtype_of(dtype)
    if isinstance(wanted, torch.dtype):
        return tensor.to(wanted)
    return torch.Tensor.type(tensor, wanted, non_blocking)  # type: ignore[call-overload]


def install(is_on_host: Callable[[], bool]) -> None:
    """Replaces PyTorch's types of the host and of CUDA.

    Args:
        is_on_host: A function that returns True while this thread prepares data on the host.
    """
    for name in NAMES:
        stand_in = OldType(getattr(torch, name), is_on_host)
        DTYPES[name] = stand_in.dtype
        for module in (torch, torch.cuda):
            if hasattr(module, name):
                setattr(module, name, stand_in)
    create = torch.Tensor.__new__

    # `new` accepts any signature: PyTorch's compiler, which optimizers load, compares it with its
    # own.
    def new(*words: Any, **kwargs: object) -> torch.Tensor:  # noqa: ANN401 - a class, and the rest
        kind, *args = words
        if kind is not torch.Tensor:
            return create(kind, *args, **kwargs)  # type: ignore[no-any-return] # a class of the user's
        return made(
            lambda *x, **named: create(kind, *x, **named), is_on_host(), tuple(args), kwargs
        )

    torch.Tensor.__new__ = staticmethod(new)  # type: ignore[assignment,method-assign]
    set_default = torch.set_default_tensor_type

    def set_default_tensor_type(t: object) -> None:
        wanted = dtype_of(t)
        if isinstance(wanted, torch.dtype) and wanted.is_floating_point:
            torch.set_default_dtype(wanted)
        else:
            set_default(t)  # type: ignore[arg-type] - it refuses this type

    torch.set_default_tensor_type = set_default_tensor_type
