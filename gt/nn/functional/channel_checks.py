"""Arguments that norms over channels refuse, as PyTorch's kernels do and in its words."""

from __future__ import annotations

from collections.abc import Sequence

import gt
from gt._core import Tensor
from gt.composite.casts import TENSOR_CLASSES
from gt.errors import DtypeError, NotSupported, ShapeError

HALF = (gt.float16, gt.bfloat16)


def require_several(shape: Sequence[int], shown: object) -> None:
    """Raise if each channel of [batch, channels, ...] has only one value, which has no variance.

    Args:
        shape: Shape of the normalized tensor.
        shown: Size for the error's text.

    Raises:
        ValueError: One value for each channel.
    """
    count = 1
    for size in (shape[0], *shape[2:]):
        count *= size
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {shown}"
        )


def check_statistics(
    input: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    affine: tuple[Tensor | None, Tensor | None],
    *,
    training: bool,
    repeats: int = 1,
) -> None:
    """Raise for vectors without one element for each channel, or with a wrong dtype.

    Args:
        input: [batch, channels, ...].
        running: Running mean and variance.
        affine: Weight and bias.
        training: Whether the input's own mean and variance are used.
        repeats: Number of times that a vector stands for the channels of an element of the batch.

    Raises:
        RuntimeError: Other sizes or dtypes, or no running values if they are used.
        ValueError: Only one of the running values.
    """
    channels = (input.shape[1] if input.ndim > 1 else 0) * repeats
    for name, value in zip(("running_mean", "running_var"), running, strict=True):
        if value is None and not training:
            raise ShapeError(f"{name} must be defined in evaluation mode")
        _check_count(name, value, channels, repeats)
    for name, value in zip(("weight", "bias"), affine, strict=True):
        _check_count(name, value, channels, repeats)
    if (running[0] is None) != (running[1] is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    check_dtypes("batch_norm", input, *affine, *running)


def _check_count(name: str, value: Tensor | None, channels: int, repeats: int) -> None:
    if value is not None and value.numel() * repeats != channels:
        raise ShapeError(f"{name} should contain {channels} elements not {value.numel() * repeats}")


def check_dtypes(kernel: str, input: Tensor, *parameters: Tensor | None) -> None:
    """Raise for an input of integers, or for a parameter with a wrong dtype.

    Args:
        kernel: PyTorch's name of the kernel.
        input: An input; with half precision its parameters may be float32.
        parameters: Parameters; None for absent ones.

    Raises:
        NotSupported: Integers or booleans.
        DtypeError: Other dtypes.
    """
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        kind = TENSOR_CLASSES[repr(input.dtype)].removesuffix("Tensor")
        raise NotSupported(f"\"{kernel}\" not implemented for '{kind}'")
    tensors = [parameter for parameter in parameters if parameter is not None]
    if all(parameter.dtype == input.dtype for parameter in tensors):
        return
    if any(parameter.dtype != gt.float32 for parameter in tensors):
        raise DtypeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    if input.dtype not in HALF:
        raise DtypeError("mixed dtype (CPU): all inputs must share same datatype.")


def check_groups(input: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None) -> None:
    """Raise for groups that do not divide the channels, or vectors without one element for each
    channel.

    Args:
        input: [batch, channels, ...].
        groups: Number of groups.
        weight: [channels].
        bias: [channels].

    Raises:
        ShapeError: A size does not match.
    """
    channels = input.shape[1]
    if groups <= 0:
        raise ShapeError(f"Expected num groups to be greater than 0, got {groups}")
    if channels % groups:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={groups}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != (channels,):
            shapes = f"shape {list(value.shape)} and input of shape {list(input.shape)}"
            raise ShapeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of {shapes}"
            )
    check_dtypes("GroupNormKernelImpl", input, weight, bias)
