"""Gradients of softmax and layer_norm, and their second derivatives."""

from gt import _core
from gt._core import Tensor, call
from gt.gradients.rules import Saved, Shape, gradient, refused, sum_to

no = refused("native_layer_norm_backward")

gradient(
    "softmax",
    self=lambda g, s: call("softmax_backward", g, s.out, dim=s.dim),
)
gradient(
    "log_softmax",
    self=lambda g, s: call("log_softmax_backward", g, s.out, dim=s.dim),
)
gradient(
    "softmax_backward",
    grad=lambda g, s: call("softmax_backward", g, s.out, dim=s.dim),
    out=lambda g, s: g * (s.grad - along(s.grad * s.out, s.dim)) - s.grad * along(g * s.out, s.dim),
)
gradient(
    "log_softmax_backward",
    grad=lambda g, s: g - along(g * s.out.exp(), s.dim),
    out=lambda g, s: -g * s.out.exp() * along(s.grad, s.dim),
)
gradient(
    "layer_norm",
    input=lambda g, s: layer_norm_input(g[0], s),
    weight=lambda g, s: layer_norm_weight(g[0], s),
    bias=lambda g, s: layer_norm_bias(g[0], s),
)
gradient("layer_norm_backward", **dict.fromkeys(("grad", "input", "mean", "rstd", "weight"), no))


def along(x: Tensor, dim: int) -> Tensor:
    return call("sum", x, dim=(dim,), keepdim=True)


def last_dims(shape: Shape) -> Shape:
    return tuple(range(-len(shape), 0))


def standardized(s: Saved) -> Tensor:
    """The input with mean 0 and variance 1, from the input itself."""
    dims = last_dims(s.normalized_shape)
    mean = call("mean", s.input, dim=dims, keepdim=True)
    variance = call("var", s.input, dim=dims, correction=0.0, keepdim=True)
    return (s.input - mean) * (variance + s.eps).rsqrt()


def layer_norm_grads(g: Tensor, s: Saved) -> tuple[Tensor, ...]:
    """Of input, weight and bias, by one instruction."""
    operands = (g, s.input, s.out1, s.out2, s.weight)
    shape = s.normalized_shape
    return s.once(lambda: call("layer_norm_backward", *operands, normalized_shape=shape))


def layer_norm_weight(g: Tensor, s: Saved) -> Tensor:
    if not _core.is_grad_enabled():
        return layer_norm_grads(g, s)[1]
    return sum_to(g * standardized(s), s.shape_of("weight"))


def layer_norm_bias(g: Tensor, s: Saved) -> Tensor:
    if not _core.is_grad_enabled():
        return layer_norm_grads(g, s)[2]
    return sum_to(g, s.shape_of("bias"))


def layer_norm_input(g: Tensor, s: Saved) -> Tensor:
    """Under create_graph in operators that can be differentiated again."""
    if not _core.is_grad_enabled():
        return layer_norm_grads(g, s)[0]
    shape = s.normalized_shape
    dims, x = last_dims(shape), standardized(s)
    variance = call("var", s.input, dim=dims, correction=0.0, keepdim=True)
    g = g if s.weight is None else g * s.weight
    shared = call("mean", g, dim=dims, keepdim=True)
    turned = x * call("mean", g * x, dim=dims, keepdim=True)
    return (g - shared - turned) * (variance + s.eps).rsqrt()
