"""Arguments from PyTorch to GT and results back, trees of them; no comparison here."""

import dataclasses
import warnings
from collections.abc import Callable

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

import gt
from gt import _core

# PyTorch's own tests look for the test that asks for samples: in the source of every caller, which
# takes longer than most samples do. Ours have no such test, so the answer was always none.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None
DTYPES = {
    getattr(torch, name): getattr(_core, name)
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
NAMED = (torch.dtype, torch.device, torch.memory_format, torch.layout)
DIMENSIONS_MAX = 8
SCALARS = (bool, int, float, complex, str, type(None), type(...), slice)


class NotConvertible(Exception):
    """A sample with an argument that GT has no counterpart of."""


def to_gt(x: torch.Tensor) -> gt.Tensor:
    """A GT tensor with the values of `x`; requires a gradient where `x` does."""
    if x.layout != torch.strided or x.dtype not in DTYPES:
        raise NotConvertible(f"{x.dtype}, {x.layout}".replace("torch.", ""))
    if x.ndim > DIMENSIONS_MAX:
        raise NotConvertible(f"more than {DIMENSIONS_MAX} dimensions")
    if x.is_meta:
        raise NotConvertible("a tensor without values")
    with torch.no_grad():
        flat = x.detach().resolve_conj().resolve_neg()
        flat = flat.reshape(-1).clone(memory_format=torch.contiguous_format)
        flat = flat.view(torch.uint8) if x.numel() else torch.empty(0, dtype=torch.uint8)
    return _core.from_bytes(flat.numpy(), tuple(x.shape), DTYPES[x.dtype], x.requires_grad)


def to_gt_view(x: torch.Tensor) -> gt.Tensor:
    """A view with the values of `x`, of a GT tensor that holds them in another order."""
    if x.ndim < 2:
        return to_gt(x)
    reverse = tuple(reversed(range(x.ndim)))
    return to_gt(x.detach().permute(reverse)).permute(reverse)


def from_gt(x: gt.Tensor) -> torch.Tensor:
    """Waits for a tensor; the same values in PyTorch."""
    dtype = next(theirs for theirs, ours in DTYPES.items() if ours == x.dtype)
    data = _core.read_bytes(x)
    if not data.size:
        return torch.empty(tuple(x.shape), dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(tuple(x.shape))


def convert(value: object, tensor: Callable[[torch.Tensor], object]) -> object:
    """`value` with its tensors by `tensor`, and dtypes by GT's."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, NAMED):
        return named(value)
    if isinstance(value, slice):
        return slice(*(convert(x, tensor) for x in (value.start, value.stop, value.step)))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, list | tuple):
        return type(value)(convert(x, tensor) for x in value)
    if isinstance(value, dict):
        return {key: convert(x, tensor) for key, x in value.items()}
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        fields = [field.name for field in dataclasses.fields(value)]
        return gt.nn.LinearCrossEntropyOptions(
            **{name: convert(getattr(value, name), tensor) for name in fields}
        )
    if isinstance(value, torch.nn.PairwiseDistance):
        return gt.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    if isinstance(value, SCALARS):
        return value
    raise NotConvertible(type(value).__name__)


def named(value: object) -> object:
    """GT's dtype, memory format or layout of the same name; a device as its name."""
    name = str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return name
    if isinstance(value, torch.dtype) and value not in DTYPES:
        raise NotConvertible(name)
    counterpart = getattr(gt, name, None)
    if counterpart is None:
        raise NotConvertible(name)
    return counterpart


def map_tensors(value: object, tensor: Callable[[torch.Tensor], object]) -> object:
    """`value` with its torch tensors replaced; everything else stays PyTorch's."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(map_tensors(x, tensor) for x in value)
    if isinstance(value, dict):
        return {key: map_tensors(x, tensor) for key, x in value.items()}
    return value


def tensors(value: object, kind: type) -> list[object]:
    """All tensors of class `kind` in a tree, in order."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for x in value for tensor in tensors(x, kind)]
    return []


def quietly(call: Callable[[], object]) -> object:
    """Result of a PyTorch call, without its deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()
