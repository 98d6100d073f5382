"""Bounds the difference between a sharded half-precision result and the result without layouts.

A sharded contraction rounds each member's product before they are added (in float32, rounded once),
like every system that sends contributions in the dtype of the operands; other sums are rounded
once. So the sharded result is held to the error of the whole one, both measured against float64.
"""

import torch

import gt
from harness.compare import difference
from harness.convert import from_gt, tensors

# Half the distance between 1 and the next number.
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
# A contribution each, at most four members, are rounded and added up, and their sum is.
ERRORS_MAX = 5.0
# With a larger error float64 computed something else (another draw, another branch at a tie).
ORACLE_ERRORS_MAX = 64.0


def half_difference(
    made: object,
    whole: object,
    oracle: object | None,
    *,
    scale: float,
    shares: int,
    products: bool,
    looser: float,
) -> str | None:
    """The first thing in which a spread result is worse than the whole one; None where it is not.

    Args:
        made: what came of it under a layout, a tree of GT's tensors.
        whole: the same without layouts, PyTorch's.
        oracle: the same of float64 operands, if those can be had.
        scale: the largest value of an operand; contributions may cancel.
        shares: how much larger than a value its contributions are.
        products: whether some steps are products of matrices, whose NaN are free: PyTorch's own
            kernel for small ones in half precision spreads them to neighbouring rows, or does not,
            by its operands' strides.
        looser: where large terms cancel inside, as in attention's gradients: a factor.
    """
    loosely = difference(made, whole, values=False)  # classes, dtypes and shapes
    if loosely:
        return loosely
    ours, theirs = tensors(made, gt.Tensor), tensors(whole, torch.Tensor)
    exact = tensors(oracle, torch.Tensor) if oracle is not None else [None] * len(theirs)
    if len(exact) != len(theirs):
        exact = [None] * len(theirs)
    for x, y, z in zip(ours, theirs, exact, strict=True):
        what = _worse(from_gt(x), y.detach(), z, scale, shares, products, looser)
        if what:
            return what
    return None


def _worse(
    made: torch.Tensor,
    whole: torch.Tensor,
    oracle: torch.Tensor | None,
    scale: float,
    shares: int,
    products: bool,
    looser: float,
) -> str | None:
    if whole.dtype not in UNIT:
        return difference(gt.from_numpy(made.numpy()), whole, values=True, looser=ERRORS_MAX)
    a, b = made.double(), whole.double()
    odd = a.isnan() | b.isnan()
    if not products and not torch.equal(a.isnan(), b.isnan()):
        return f"NaN at {int((a.isnan() ^ b.isnan()).sum())} of {a.numel()} other places"
    # A sum of contributions may round the dtype's largest numbers to infinity.
    unit = UNIT[whole.dtype] * scale * shares
    edge = torch.minimum(a.abs(), b.abs()) + unit > torch.finfo(whole.dtype).max
    odd |= (a.isinf() ^ b.isinf()) & edge
    infinite = (a.isinf() | b.isinf()) & ~odd
    if not torch.equal(a[infinite], b[infinite]):
        return f"{int((a[infinite] != b[infinite]).sum())} of {a.numel()} infinities differ"
    finite = ~odd & ~infinite
    if not finite.any():
        return None
    a, b = a[finite], b[finite]
    unit = UNIT[whole.dtype] * max(float(b.abs().max()), scale) * shares
    exact = oracle.detach().double()[finite] if oracle is not None else b
    error = float((b - exact).abs().max())
    if not error <= ORACLE_ERRORS_MAX * unit:
        exact, error = b, 0.0
    worst = float((a - exact).abs().max())
    if worst <= looser * (ERRORS_MAX * unit + error):
        return None
    return f"an error of {worst:.3g}, without layouts {error:.3g}, where one rounding is {unit:.3g}"
