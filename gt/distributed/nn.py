"""`gt.distributed.nn`: collectives through which gradients pass, as through all of GT's."""

import sys

from gt.compat import misses
from gt.distributed.collective import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce_scatter,
    scatter,
)

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "functional",
    "gather",
    "reduce_scatter",
    "scatter",
]

functional = sys.modules[__name__]  # PyTorch's file of these functions
sys.modules[f"{__name__}.functional"] = functional
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
