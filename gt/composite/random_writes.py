"""In-place draws beyond the uniform and normal ones.

Each is a function of the generator's uniform numbers (gt/tensors/draws.py), so a layout changes no
value.
"""

import math

from gt import _core
from gt._core import Tensor
from gt.composite.casts import class_of
from gt.composite.common import Method
from gt.composite.inplace import drawn
from gt.errors import DtypeError, ShapeError
from gt.tensors.draws import Generator


def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with values of the Cauchy distribution around `median`.

    Raises:
        ShapeError: `sigma` is 0 or less.
        DtypeError: the tensor is of integers.
    """
    check_floats(self, "Cauchy")
    if sigma <= 0:
        raise ShapeError(f"cauchy_ expects sigma > 0.0, but found sigma={float(sigma):g}")
    share = drawn(self, generator, "uniform", 0.0, 1.0)
    return _core.assign_(self, ((share - 0.5) * math.pi).tan() * sigma + median)


def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with exponentials of normally distributed values with this mean and deviation.

    Raises:
        ShapeError: `std` is 0 or less.
        DtypeError: the tensor is of integers.
    """
    check_floats(self, "log_normal")
    if not std > 0:
        raise ShapeError(f"log_normal_ expects std > 0.0, but found std={float(std):g}")
    return _core.assign_(self, drawn(self, generator, "normal", float(mean), float(std)).exp())


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials up to the first success, each of probability `p`.

    Raises:
        ShapeError: `p` is outside of (0, 1).
    """
    if not 0 < p < 1:
        raise ShapeError(f"geometric_ expects p to be in (0, 1), but got p={float(p):g}")
    share = drawn(self, generator, "uniform", 0.0, 1.0)  # 1 - share is in (0, 1]
    trials = ((-share).log1p() / math.log1p(-p)).ceil().clamp(min=1)
    return _core.assign_(self, trials)


def check_floats(self: Tensor, what: str) -> None:
    """Raise PyTorch's error for integers."""
    if not self.is_floating_point():
        raise DtypeError(
            f"{what} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {class_of(self.dtype)}"
        )


METHODS: dict[str, Method] = {
    "cauchy_": cauchy_,
    "geometric_": geometric_,
    "log_normal_": log_normal_,
}
