"""Decides whether a float32 result is as near to the float64 result as PyTorch's is.

Where terms cancel and a library sums in another order, which depends on the processor, two float32
results may differ by more than any relative bound. Float64 shows which of the two is wrong, or that
neither is. GT is unknown here.
"""

from collections.abc import Sequence

import torch

ERRORS_MAX = 4.0  # how many times PyTorch's largest error ours may have
UNITS_MAX = 8.0  # roundings of the largest element that may be added


def is_as_exact(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """True where the largest error of `ours` is within the bound that PyTorch's error sets.

    Args:
        ours: GT's float32 result.
        theirs: PyTorch's, of the same shape.
        exact: PyTorch's of the same operands in float64.
    """
    if not ours.shape == theirs.shape == exact.shape or ours.dtype != torch.float32:
        return False
    a, b, c = ours.double(), theirs.double(), exact.double()
    finite = b.isfinite()
    if not torch.equal(a[~finite].nan_to_num(nan=0.5), b[~finite].nan_to_num(nan=0.5)):
        return False
    if not (a[finite].isfinite().all() and c[finite].isfinite().all()):
        return False
    a, b, c = a[finite], b[finite], c[finite]
    if not a.numel():
        return True
    unit = torch.finfo(torch.float32).eps * c.abs().max()
    return bool((a - c).abs().max() <= ERRORS_MAX * (b - c).abs().max() + UNITS_MAX * unit)


def are_as_exact(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> bool:
    """`is_as_exact` of each floating-point tensor; all others are equal."""
    return len(ours) == len(theirs) == len(exact) and all(
        is_as_exact(a, b, c) if b.dtype == torch.float32 else torch.equal(a, b)
        for a, b, c in zip(ours, theirs, exact, strict=True)
    )


def in_double(x: torch.Tensor) -> torch.Tensor:
    """A float32 tensor as float64, a leaf where it was one; any other as it is."""
    if x.dtype != torch.float32:
        return x
    return x.detach().double().requires_grad_(x.requires_grad)
