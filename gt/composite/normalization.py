"""layer_norm and rms_norm, which PyTorch has both in torch and in torch.nn.functional."""

from collections.abc import Sequence

from gt import _core
from gt._core import Tensor, call
from gt.errors import ShapeError
from gt.tensors.dtypes import finfo


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

    `eps` is by default the dtype's smallest step at 1.
    """
    shape = tuple(normalized_shape)
    dtype = input.dtype
    if dtype.is_complex:
        return _of_complex(input, shape, weight, eps)
    wide = _core.float32 if dtype in {_core.float16, _core.bfloat16} else dtype
    if eps is None:
        eps = finfo(wide).eps if dtype.is_floating_point else 0.0
    if weight is None or weight.dtype == dtype or weight.shape != shape:
        output, _ = call("rms_norm", input, weight, normalized_shape=shape, eps=eps)
        return output
    # A weight of another dtype: PyTorch promotes from the dtype in which it computes.
    normal, _ = call("rms_norm", input.to(wide), None, normalized_shape=shape, eps=eps)
    return (normal * weight).to(dtype)


def _of_complex(
    input: Tensor, shape: tuple[int, ...], weight: Tensor | None, eps: float | None
) -> Tensor:
    """rms_norm of complex numbers by its formula, since the row takes none."""
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    if weight is not None and weight.shape != shape:
        raise ShapeError(
            "Expected weight to be of same shape as normalized_shape, but got weight of shape "
            f"{list(weight.shape)} and normalized_shape = {list(shape)}"
        )
    eps = finfo(input.dtype).eps if eps is None else eps
    squares = (input * input).mean(dim=tuple(range(-len(shape), 0)), keepdim=True)
    normal = input * (squares + eps).rsqrt()
    return (normal if weight is None else normal * weight).to(input.dtype)
