"""layer_norm and rms_norm, which PyTorch has both in torch and in torch.nn.functional."""

from collections.abc import Sequence

from gt import _core
from gt._core import Tensor, call
from gt.dtypes import finfo
from gt.errors import ShapeError


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    shape = tuple(normalized_shape)
    output, _, _ = call("layer_norm", input, weight, bias, normalized_shape=shape, eps=eps)
    return output


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """input / sqrt(mean(input ** 2) + eps) * weight over the last dimensions.

    Without `eps` it is the dtype's smallest step at 1.
    """
    shape = tuple(normalized_shape)
    if not shape:
        raise ShapeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    if weight is not None and weight.shape != shape:
        raise ShapeError(
            "Expected weight to be of same shape as normalized_shape, but got weight of shape "
            f"{list(weight.shape)} and normalized_shape = {list(shape)}"
        )
    if input.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    dims = tuple(range(-len(shape), 0))
    wide = input.float() if input.dtype in {_core.float16, _core.bfloat16} else input
    smallest = finfo(wide.dtype).eps if eps is None else eps
    scaled = wide * ((wide * wide).mean(dim=dims, keepdim=True) + smallest).rsqrt()
    if weight is not None:
        scaled = scaled * weight
    return scaled.to(input.dtype)
