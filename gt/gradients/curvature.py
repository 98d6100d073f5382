"""Gradients of the elementwise *_backward operators, that is second derivatives of activations."""

import math

from gt._core import Tensor, call
from gt.gradients.elementwise import leaky_relu_backward, softplus_backward
from gt.gradients.rules import gradient, zero

gradient(
    "tanh_backward",
    grad=lambda g, s: call("tanh_backward", g, s.out),
    out=lambda g, s: -2 * g * s.grad * s.out,
)
gradient(
    "sigmoid_backward",
    grad=lambda g, s: call("sigmoid_backward", g, s.out),
    out=lambda g, s: g * s.grad * (1 - 2 * s.out),
)
gradient("relu_backward", grad=lambda g, s: call("relu_backward", g, s.out), out=zero)
gradient(
    "gelu_backward",
    grad=lambda g, s: call("gelu_backward", g, s.self, approximate=s.approximate),
    self=lambda g, s: g * s.grad * gelu_curvature(s.self, s.approximate),
)
gradient(
    "silu_backward",
    grad=lambda g, s: call("silu_backward", g, s.self),
    self=lambda g, s: g * s.grad * silu_curvature(s.self),
)
gradient("leaky_relu_backward", grad=leaky_relu_backward, self=zero)
gradient(
    "elu_backward",
    grad=lambda g, s: call("elu_backward", g, s.self, alpha=s.alpha),
    self=lambda g, s: call("where", s.self < 0, g * s.grad * (s.alpha * s.self.exp()), 0.0),
)
gradient(
    "softplus_backward",
    grad=softplus_backward,
    self=lambda g, s: g * s.grad * softplus_curvature(s.self, s.beta, s.threshold),
)


def gelu_curvature(x: Tensor, approximate: str) -> Tensor:
    """The second derivative of gelu."""
    if approximate == "none":
        return (2 - x.square()) * (-0.5 * x.square()).exp() * (1 / math.sqrt(2 * math.pi))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x.square())
    bend = math.sqrt(2 / math.pi) * 6 * 0.044715 * x
    tanh = (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()
    sech = 1 - tanh.square()
    return sech * (slope + 0.5 * x * bend - x * tanh * slope.square())


def silu_curvature(x: Tensor) -> Tensor:
    """The second derivative of silu."""
    sigmoid = x.sigmoid()
    return sigmoid * (1 - sigmoid) * (2 + x * (1 - 2 * sigmoid))


def softplus_curvature(x: Tensor, beta: float, threshold: float) -> Tensor:
    """The second derivative of softplus: zero in its linear part."""
    sigmoid = (x * beta).sigmoid()
    return call("where", x * beta < threshold, sigmoid * (1 - sigmoid) * beta, 0.0)
