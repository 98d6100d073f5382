"""Tensors of `mux` and of other devices: copies between them, `zeros_like(x, device="cpu")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import gt
from gt.torch import layouts
from gt.torch.elements import DEVICE_TYPE, dtype_of
from gt.torch.tensor import MuxTensor, of_value

# True if operators accept tensors of other devices beside those of `mux`: they are copied.
uploads_operands = False


def is_here(device: object) -> bool:
    """True if a `device=` is the device `mux` or None."""
    if device is None:
        return True
    return torch.device(device).type == DEVICE_TYPE  # type: ignore[call-overload,no-any-return]


def created(
    operator: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> object:
    """A tensor on another device with the metadata of one here; no elements are read."""
    likes = [_like(x, kwargs["device"]) if isinstance(x, MuxTensor) else x for x in args]
    return operator(*likes, **kwargs)


def _like(x: MuxTensor, device: object) -> torch.Tensor:
    result: torch.Tensor = torch.empty(x.shape, dtype=x.dtype, device=device)  # type: ignore[call-overload]
    return result


def to_copy(args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """`aten::_to_copy`: a copy in another dtype, or on another device."""
    (source,) = args
    device = kwargs.get("device")
    dtype = kwargs.get("dtype")
    assert isinstance(source, torch.Tensor), source
    if kwargs.get("layout") not in (None, source.layout):
        raise RuntimeError(
            "to(options) doesn't support converting to a different layout, but got self.layout "
            f"being {_layout_name(source.layout)} and options.layout set as "
            f"{_layout_name(kwargs['layout'])}"
        )
    if not is_here(device):
        host: torch.Tensor = gt.to_torch(source.value)  # type: ignore[attr-defined]
        return host.to(device=device, dtype=dtype)  # type: ignore[call-overload,no-any-return]
    if not isinstance(source, MuxTensor):
        return upload(source, dtype)  # type: ignore[arg-type]
    if dtype is None or dtype == source.dtype:
        return of_value(source.value.clone())
    return of_value(source.value.to(dtype_of(dtype)))  # type: ignore[arg-type]


def layout_refused(operator: Any, layout: object) -> NotImplementedError:  # noqa: ANN401
    """An operator's answer to a `layout=` other than strided."""
    return NotImplementedError(
        f"{operator._schema} with layout={layout} is not implemented for the device "  # noqa: SLF001
        f"{DEVICE_TYPE}, whose tensors are strided or, by x.to_sparse() and "
        "torch.sparse_coo_tensor, in coordinates: make the tensor on the host, device='cpu'"
    )


def _layout_name(layout: object) -> str:
    """A layout as PyTorch's C++ prints it: `Strided`, `Sparse`, `SparseCsr`."""
    return str(layout).partition(".")[2].title().replace("_", "").replace("Coo", "")


def upload(source: torch.Tensor, dtype: torch.dtype | None = None) -> MuxTensor:
    """A copy of a tensor of another device."""
    layouts.watch()
    wanted = dtype_of(dtype or source.dtype)
    value = gt.from_torch(source.detach().cpu().contiguous().resolve_conj().resolve_neg())
    return of_value(value if value.dtype == wanted else value.to(wanted))


def copy_(args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """`aten::copy_`, in any direction."""
    target, source = args[:2]
    del kwargs  # non_blocking: a program waits for no write
    assert isinstance(target, torch.Tensor)
    if not isinstance(target, MuxTensor):
        return target.copy_(gt.to_torch(source.value))  # type: ignore[attr-defined]
    if isinstance(source, MuxTensor):
        target.value.copy_(source.value)
    else:
        assert isinstance(source, torch.Tensor)
        target.value.copy_(upload(source).value)
    return target


def copy_from(args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """`aten::_copy_from`: `copy_` with the source first."""
    source, target = args[:2]
    return copy_((target, source), kwargs)


def item(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """`aten::_local_scalar_dense`: reads one element."""
    del kwargs
    (x,) = args
    assert isinstance(x, MuxTensor)
    return x.value.item()
