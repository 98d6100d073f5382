"""Gradients: passes over the tape, functions with a backward of the user's, hooks, grad mode.

The tape and the pass themselves are in gt._core.
"""

from gt.autograd import anomaly_mode, forward_ad, function, functional, grad_mode, graph, hooks
from gt.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from gt.autograd.function import Function
from gt.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from gt.autograd.gradcheck import gradcheck, gradgradcheck
from gt.autograd.passes import backward, grad
from gt.compat.variable import Variable

hooks.install()

__all__ = [
    "Function",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def __getattr__(name: str) -> object:
    from gt.compat.missing import attribute_error

    raise attribute_error("gt.autograd", name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the package's own use are left out."""
    return __all__
