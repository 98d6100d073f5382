"""Optimizers and schedules with PyTorch's names, arguments and numerics."""

from gt import documentation as _documentation
from gt.compat import misses
from gt.optim import lr_scheduler, swa_utils
from gt.optim.adadelta import Adadelta
from gt.optim.adafactor import Adafactor
from gt.optim.adagrad import Adagrad
from gt.optim.adam import Adam, AdamW
from gt.optim.adamax import Adamax
from gt.optim.asgd import ASGD
from gt.optim.lbfgs import LBFGS
from gt.optim.muon import Muon
from gt.optim.nadam import NAdam
from gt.optim.optimizer import Optimizer
from gt.optim.radam import RAdam
from gt.optim.rmsprop import RMSprop
from gt.optim.rprop import Rprop
from gt.optim.sgd import SGD
from gt.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

_documentation.attach(__name__, globals())
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
