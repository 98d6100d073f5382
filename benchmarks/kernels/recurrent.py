"""LSTM and GRU layers by gt._kernels beside torch.nn's: time, GFLOP/s and the ratio, in one run.

    taskset -c 0,1 python benchmarks/kernels/recurrent.py [--cpu-time]

Both sides train a whole layer: the product with the input, the steps, and gradients of the input,
weights and biases. PyTorch's LSTM is one kernel for the sequence; its GRU runs step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import beside_torch
import torch
from beside_torch import Case, run
from torch import Tensor, nn

from gt import _kernels

# steps, rows, units; the input has one column for each unit
_SIZES = ((64, 8, 32), (64, 1, 32), (64, 8, 33), (64, 32, 128), (35, 20, 200))
_LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}


def _product(a: Tensor, b: Tensor, bias: Tensor | None, threads: int) -> Tensor:
    out = torch.empty(a.shape[0], b.shape[1])
    _kernels.matmul(out, a, b, bias, threads=threads)
    return out


class _Own:
    """A layer by GT's kernels with the weights of PyTorch's layer."""

    def __init__(self, kind: str, layer: nn.RNNBase, x: Tensor, grad: Tensor) -> None:
        self._kind, self._x, self._grad = kind, x, grad
        weights = [one.detach() for one in layer.all_weights[0]]
        self._input_weight, self._weight, input_bias, bias = weights
        self._state_bias: Tensor | None
        self._hidden = torch.zeros(x.shape[1], self._weight.shape[1])
        # A GRU's reset gate acts on the bias of its state; an LSTM has one bias.
        self._cell = self._hidden if kind == "lstm" else None
        self._bias, self._state_bias = input_bias, bias
        if kind == "lstm":
            self._bias, self._state_bias = input_bias + bias, None

    def forward(self, threads: int) -> tuple[Tensor, ...]:
        """Output, cells of an LSTM, and activations."""
        gates = _product(self._x.flatten(0, 1), self._input_weight.t(), self._bias, threads)
        steps = gates.view(*self._x.shape[:2], -1)
        if self._kind == "lstm":
            operands = (self._hidden, self._cell, self._weight)
        else:
            operands = (self._hidden, self._weight, self._state_bias)
        return run(f"{self._kind}_layer", steps, *operands, False, threads=threads)

    def backward(self, kept: tuple[Tensor, ...], threads: int) -> tuple[Tensor, ...]:
        """Gradients of the input, both weights and both biases."""
        if self._kind == "lstm":
            operands = (self._grad, None, self._hidden, self._cell, self._weight)
        else:
            operands = (self._grad, self._hidden, self._weight)
        made = run(f"{self._kind}_layer_backward", *operands, *kept, False, threads=threads)
        flat = made[0].flatten(0, 1)
        bias = flat.sum(0)
        of_weight, of_bias = (made[-1], bias) if self._kind == "lstm" else made[-2:]
        return (
            _product(flat, self._input_weight, None, threads),
            _product(flat.t(), self._x.flatten(0, 1), None, threads),
            of_weight,
            bias,
            of_bias,
        )


def _recorded(call: Callable[[], object]) -> object:
    """The result with autograd enabled, which beside_torch.main switches off."""
    with torch.inference_mode(False), torch.enable_grad():
        return call()


@torch.inference_mode(False)
def _both(kind: str, steps: int, rows: int, units: int) -> Iterator[Case]:
    """Forward and backward."""
    layer = _LAYERS[kind](units, units)
    x, grad = torch.randn(steps, rows, units), torch.randn(steps, rows, units)
    followed = x.clone().requires_grad_()
    with torch.enable_grad():
        output = layer(followed)[0]
    inputs = [followed, *layer.parameters()]
    own = _Own(kind, layer, x, grad)
    kept = own.forward(1)
    work = 2 * steps * rows * layer.all_weights[0][0].shape[0] * 2 * units
    name = f"{kind.upper()} {steps} x {rows} x {units}"
    yield Case(name, work, lambda: _recorded(lambda: layer(followed)), own.forward)
    yield Case(
        f"  its gradient {name}",
        2 * work,
        lambda: _recorded(lambda: torch.autograd.grad(output, inputs, grad, retain_graph=True)),
        lambda threads: own.backward(kept, threads),
    )


def _cases() -> Iterator[Case]:
    for kind in _LAYERS:
        for size in _SIZES:
            yield from _both(kind, *size)


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases)
