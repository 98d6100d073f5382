"""Learning rates over time. Schedules set group["lr"]; values equal PyTorch's to rounding."""

from gt import documentation as _documentation
from gt.compat import misses
from gt.optim.lr_scheduler.base import LRScheduler
from gt.optim.lr_scheduler.curves import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from gt.optim.lr_scheduler.cycle import OneCycleLR
from gt.optim.lr_scheduler.cyclic import CyclicLR
from gt.optim.lr_scheduler.joined import ChainedScheduler, SequentialLR
from gt.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_LRScheduler = LRScheduler  # its older name


_documentation.attach(__name__, globals())
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
