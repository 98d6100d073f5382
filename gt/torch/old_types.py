"""Types that make tensors, `torch.FloatTensor([1.0])` and `torch.Tensor(3, 4)`, for `gt run`.

PyTorch's own make tensors of the host or of CUDA, and no mode of PyTorch's sees them called.
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


class OldType(type):
    """Stands for one of PyTorch's types: makes tensors of its dtype on the device."""

    kind: Any  # of the host
    dtype: torch.dtype
    is_on_host: Callable[[], bool]

    def __new__(cls, kind: Any, is_on_host: Callable[[], bool]) -> OldType:  # noqa: ANN401
        """A class, since PyTorch asks of some types whether they are subclasses of it."""
        entries = {"kind": kind, "dtype": kind.dtype, "is_on_host": staticmethod(is_on_host)}
        return super().__new__(cls, kind.__name__, (), {**entries, "__module__": "torch"})

    def __init__(cls, *_: object) -> None:
        super().__init__(cls.__name__, (), {})

    def __call__(cls, *args: object, **kwargs: object) -> torch.Tensor:
        """A tensor of numbers, or of a size with elements that nobody has written."""
        return made(cls.kind, cls.is_on_host(), args, kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.dtype == cls.dtype

    def __repr__(cls) -> str:
        return repr(cls.kind)


def made(
    kind: Callable[..., torch.Tensor],
    is_on_host: bool,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> torch.Tensor:
    """The tensor of a type of PyTorch's, uploaded unless the program prepares data on the host."""
    kwargs.pop("device", None)
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - a mode would say that all is on the device
        tensor = kind(*[x.cpu() if isinstance(x, MuxTensor) else x for x in args], **kwargs)
    return tensor if is_on_host else tensor.to(DEVICE_TYPE)


def dtype_of(kind: object) -> object:
    """The dtype of a type, or of its name, by which programs ask for a conversion."""
    if isinstance(kind, str):
        return DTYPES.get(kind.rpartition(".")[2], kind)
    return DTYPES.get(getattr(kind, "__name__", ""), kind)


def converted(
    tensor: torch.Tensor, dtype: object = None, non_blocking: bool = False, **_: object
) -> object:
    """`Tensor.type`: a conversion alone, for there is one device."""
    wanted = dtype_of(dtype)
    if isinstance(wanted, torch.dtype):
        return tensor.to(wanted)
    return torch.Tensor.type(tensor, wanted, non_blocking)  # type: ignore[call-overload]


def install(is_on_host: Callable[[], bool]) -> None:
    """Puts them in the place of PyTorch's, of the host's and of CUDA's.

    Args:
        is_on_host: Whether this thread prepares data on the host now.
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
            set_default(t)  # type: ignore[arg-type] # which refuses it

    torch.set_default_tensor_type = set_default_tensor_type
