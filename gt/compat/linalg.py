"""Linear algebra, as in torch.linalg.

A function without a row of its own in ops.toml runs whole on one worker.
"""

from gt import documentation, errors
from gt._core import Tensor
from gt.compat import misses
from gt.tensors.aten import surface

_functions = surface.functions("l", "linalg_")
globals().update(_functions)
__all__ = sorted([*_functions, "LinAlgError", "diagonal"])  # noqa: PLE0605 - the names of torch's own schemas

LinAlgError = errors.LinAlgError


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    """The diagonals of the matrices in two dimensions, as a view; of the last two by default."""
    return A.diagonal(offset, dim1, dim2)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__


documentation.attach(__name__, globals())
