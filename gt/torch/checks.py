"""Operators with which PyTorch's own library checks values and draws: its distributions and layers.

They have no public callers, so PyTorch's operator samples do not contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

import gt
from gt import _core
from gt._core import Tensor
from gt.distributions import gamma_draws
from gt.torch.tensor import MuxTensor

# Numbers of the kinds of mask in `_masked_softmax`.
OF_ATTENTION, OF_PADDING = 0, 1


def assert_async(self: Tensor, assert_msg: str | None = None) -> None:
    """Checks a condition, which is read: the error is raised at the calling line.

    Raises:
        RuntimeError: the condition is false, or has several values.
    """
    message = "Expected Tensor with single nonzero value, but got zero"
    if self.numel() != 1:
        count = "more than one value" if self.numel() else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
    if not bool(self):
        raise RuntimeError(message if assert_msg is None else assert_msg)


def functional_assert_async(self: Tensor, assert_msg: str, dep_token: Tensor) -> Tensor:
    """`assert_async` with a result, which keeps the order in a graph."""
    assert_async(self, assert_msg)
    return dep_token.clone()


def assert_tensor_metadata(args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Checks a tensor's metadata: nothing is read.

    Raises:
        RuntimeError: the metadata differ.
    """
    names = ("a", "size", "stride", "dtype")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    tensor = arguments.pop("a")
    assert isinstance(tensor, MuxTensor)
    device = arguments.pop("device", None)
    if device is not None and torch.device(str(device)).type != tensor.device.type:
        raise RuntimeError(f"Tensor device mismatch! Expected: {device}, Got: {tensor.device}")
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    torch.ops.aten._assert_tensor_metadata(like, **arguments)  # noqa: SLF001 - nothing public does it


def masked_softmax(
    self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    """The softmax of scores without masked elements; fully masked rows are zeros.

    Args:
        self: Scores, [b, h, s, t] or of the mask's shape.
        mask: True where an element is left out, [s, t] or [b, t].
        dim: Dimension of the softmax; the last one.
        mask_type: Kind of the mask: attention, padding or the scores' shape.
    """
    if mask_type == OF_ATTENTION:
        mask = mask.expand(self.shape)
    elif mask_type == OF_PADDING:
        batch, length = mask.shape
        mask = mask.view(batch, 1, 1, length).expand(self.shape)  # [b, t] -> [b, h, s, t]
    along = self.ndim - 1 if dim is None else dim
    result = self.masked_fill(mask, -gt.inf).softmax(along)
    return result.masked_fill(mask.all(along, keepdim=True), 0.0)


def masked_softmax_backward(
    grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None
) -> Tensor:
    """The gradient of the scores."""
    along = output.ndim - 1 if dim is None else dim
    grad = _core.call("softmax_backward", grad_output, output, dim=along)
    return grad.masked_fill(mask.expand(grad.shape), 0.0)


def _is_left_aligned(self: Tensor, mask: Tensor) -> bool:
    """False for any mask: True would lead to nested tensors, which GT does not have."""
    del self, mask
    return False


def _sample_dirichlet(self: Tensor, generator: gt.Generator | None = None) -> Tensor:
    del generator  # PyTorch's distribution gives none
    return gamma_draws.dirichlet(self)


WHOLE: dict[str, Callable[[Sequence[object], Mapping[str, object]], object]] = {
    "_assert_tensor_metadata": assert_tensor_metadata,
}
FUNCTIONS: dict[str, Callable[..., object]] = {
    "_is_all_true": Tensor.all,
    "_is_any_true": Tensor.any,
    "_assert_async": assert_async,
    "_assert_async.msg": assert_async,
    "_functional_assert_async.msg": functional_assert_async,
    "_masked_softmax": masked_softmax,
    "_masked_softmax_backward": masked_softmax_backward,
    "_nested_tensor_from_mask_left_aligned": _is_left_aligned,
    "_standard_gamma": gamma_draws.standard_gamma,
    "_sample_dirichlet": _sample_dirichlet,
}
