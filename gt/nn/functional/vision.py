"""Images: resizing, samples at places of a grid, and blocks as columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn.functional.pooled import Sizes
from gt.tensors.aten.call import call

_MODES = {
    ("nearest", 3): "upsample_nearest1d",
    ("nearest", 4): "upsample_nearest2d",
    ("nearest", 5): "upsample_nearest3d",
    ("linear", 3): "upsample_linear1d",
    ("bilinear", 4): "upsample_bilinear2d",
    ("trilinear", 5): "upsample_trilinear3d",
    ("bicubic", 4): "upsample_bicubic2d",
    ("nearest-exact", 3): "_upsample_nearest_exact1d",
    ("nearest-exact", 4): "_upsample_nearest_exact2d",
    ("nearest-exact", 5): "_upsample_nearest_exact3d",
    ("area", 3): "adaptive_avg_pool1d",
    ("area", 4): "adaptive_avg_pool2d",
    ("area", 5): "adaptive_avg_pool3d",
}
# Operators with antialias.
_SMOOTH_MODES = {
    ("bilinear", 4): "_upsample_bilinear2d_aa",
    ("bicubic", 4): "_upsample_bicubic2d_aa",
    ("lanczos", 4): "_upsample_lanczos2d_aa",
}
_WANTED = {"linear": 3, "bilinear": 4, "trilinear": 5}


def interpolate(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The input resized.

    Args:
        input: [batch, channels, ...] with one to three more dimensions.
        size: Sizes of those dimensions; or
        scale_factor: the factor of each one.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "lanczos" or
            "area".
        align_corners: Whether the outermost elements keep their places; for linear and cubic modes.
        recompute_scale_factor: Whether to compute with the factor of the rounded size.
        antialias: Whether a smaller size averages over the elements that it skips; for bilinear,
            bicubic and lanczos in two dimensions. Lanczos requires it.

    Raises:
        ValueError: Both or none of size and scale_factor, or a wrong number of them.
        NotSupported: A mode that does not match the dimensions, or that GT does not have.
    """
    spatial = input.ndim - 2
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear"
        )
    sizes, factors = _targets(input, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if factors is not None and (recompute_scale_factor or mode == "area"):
        sizes = [int(input.shape[d + 2] * factors[d]) for d in range(spatial)]
        factors = None
    elif sizes is not None and (exact := _exact_factors(input.shape[2:], sizes)) and mode != "area":
        sizes, factors = None, exact
    name = _operator(mode, input.ndim, antialias=antialias, align_corners=bool(align_corners))
    corners = () if mode.startswith("nearest") else (bool(align_corners),)
    arguments = (sizes,) if mode == "area" else (sizes, *corners, factors)
    result: Tensor = call(name, (input, *arguments), {})
    return result


def _targets(
    input: Tensor, size: Sizes | None, scale_factor: float | Sequence[float] | None
) -> tuple[list[int] | None, list[float] | None]:
    spatial = input.ndim - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    target = size if scale_factor is None else scale_factor
    if target is None:
        raise ValueError("either size or scale_factor should be defined")
    if isinstance(target, Sequence) and len(target) != spatial:
        what, places = (
            ("output size of", "output size in (o1, o2, ...,oK)")
            if scale_factor is None
            else ("scale_factor of shape", "scale_factor in (s1, s2, ...,sK)")
        )
        raise ValueError(
            f"Input and {'output' if scale_factor is None else 'scale_factor'} must have the same "
            "number of spatial dimensions, but got input with spatial dimensions of "
            f"{list(input.shape[2:])} and {what} {target}. Please provide input tensor in "
            f"(N, C, d1, d2, ...,dK) format and {places} format."
        )
    if scale_factor is not None:
        if isinstance(scale_factor, Sequence):
            return None, [float(factor) for factor in scale_factor]
        return None, [float(scale_factor)] * spatial
    assert size is not None, "given"
    return (list(size) if isinstance(size, Sequence) else [size] * spatial), None


def _exact_factors(given: Sequence[int], sizes: Sequence[int]) -> list[float] | None:
    """The factors for sizes that are powers of two times as large: elements keep the same places.

    A cut image stays cut with factors (gt/tensors/aten/windows.txt), but not with sizes.
    """
    factors = [new / old if old else 0.0 for new, old in zip(sizes, given, strict=True)]
    exact = all(factor >= 1 and math.frexp(factor)[0] == 0.5 for factor in factors)
    return factors if exact else None


def _operator(mode: str, ndim: int, *, antialias: bool, align_corners: bool) -> str:
    """The operator for a mode."""
    if antialias and (mode, ndim) not in _SMOOTH_MODES:
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )
    if (mode, ndim) == ("lanczos", 4) and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if (mode, ndim) == ("lanczos", 4) and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    name = (_SMOOTH_MODES if antialias else _MODES).get((mode, ndim))
    if name is None:
        raise NotSupported(_misfit(mode, ndim))
    return name


def _misfit(mode: str, ndim: int) -> str:
    if mode in _WANTED and 3 <= ndim <= 5:
        return f"Got {ndim}D input, but {mode} mode needs {_WANTED[mode]}D input"
    return (
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: "
        "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact "
        f"(got {mode})"
    )


def upsample(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """PyTorch's older name for interpolate."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """PyTorch's older name for interpolate with mode "nearest"."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """PyTorch's older name for bilinear interpolate with align_corners."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The input sampled at the places of a grid.

    Args:
        input: [batch, channels, height, width], or with a depth before the height.
        grid: [batch, height, width, 2], or [batch, depth, height, width, 3]: places from -1 to 1.
        mode: "bilinear", "nearest" or "bicubic".
        padding_mode: Values outside: "zeros", "border" or "reflection".
        align_corners: Whether -1 and 1 are the centers of the outermost elements; else their edges.

    Raises:
        ValueError: Another mode.
        ShapeError: Shapes that do not fit.
    """
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if mode not in modes:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in paddings:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    numbers = (modes.index(mode), paddings.index(padding_mode))
    sampled: Tensor = call("grid_sampler", (input, grid, *numbers, _corners(align_corners)), {})
    return sampled


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for grid_sample by affine maps.

    Args:
        theta: [batch, 2, 3], or [batch, 3, 4] for three dimensions.
        size: Size of the samples: batch, channels, and two or three dimensions.
        align_corners: As in grid_sample.

    Raises:
        ValueError: A theta of another shape or of integers.
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise NotSupported(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (spatial, spatial + 1):
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} "
            f"for size {size}. Got torch.Size({list(theta.shape)})."
        )
    grid: Tensor = call("affine_grid_generator", (theta, list(size), _corners(align_corners)), {})
    return grid


def _corners(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
            "documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


def unfold(
    input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """[batch, channels, height, width] -> [batch, channels * window, windows]: blocks as columns.

    Args:
        input: [batch, channels, height, width], also without a batch.
        kernel_size: The window.
        dilation: Distance of two elements of a window.
        padding: Width of zeros at both ends.
        stride: Distance of two windows.

    Raises:
        ShapeError: Another number of dimensions, or windows that do not fit.
    """
    columns: Tensor = call("im2col", (input, kernel_size, dilation, padding, stride), {})
    return columns


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """[batch, channels * window, windows] -> [batch, channels, height, width]: blocks summed.

    Args:
        input: The result of unfold.
        output_size: Height and width.
        kernel_size: The window.
        dilation: Distance of two elements of a window.
        padding: Width of zeros at both ends.
        stride: Distance of two windows.

    Raises:
        ShapeError: Columns or windows that do not fit.
    """
    arguments = (output_size, kernel_size, dilation, padding, stride)
    image: Tensor = call("col2im", (input, *arguments), {})
    return image
