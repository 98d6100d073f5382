"""Optimizers and schedules with PyTorch's names, arguments and numerics."""

from gt.optim import lr_scheduler
from gt.optim.adagrad import Adagrad
from gt.optim.adam import Adam, AdamW
from gt.optim.optimizer import Optimizer
from gt.optim.rmsprop import RMSprop
from gt.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
