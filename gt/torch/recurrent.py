"""Cells of recurrent layers, forward and backward, as PyTorch records them on devices without CPU
kernels.

A workspace holds the operands of the backward operator: for an LSTM the gates i, f, g, o, for a GRU
the gates r, z, n, the state and the hidden part of n.
"""

from __future__ import annotations

from collections.abc import Callable

import gt
from gt._core import Tensor


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The next state, the next cell state [b, h] and the workspace [b, 4 h]."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, gt.cat([i, f, g, o], 1)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of the gates, the cell state and the biases."""
    i, f, g, o = workspace.chunk(4, 1)
    state = cy.tanh()
    grad_hy = gt.zeros_like(cy) if grad_hy is None else grad_hy
    grad_cell = grad_hy * o * (1 - state * state)
    grad_cell = grad_cell if grad_cy is None else grad_cell + grad_cy
    parts = [
        grad_cell * g * i * (1 - i),
        grad_cell * cx * f * (1 - f),
        grad_cell * i * (1 - g * g),
        grad_hy * state * o * (1 - o),
    ]
    gates = gt.cat(parts, 1)
    return gates, grad_cell * f, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The next state [b, h] and the workspace [b, 5 h]."""
    input_r, input_z, input_n = _biased(input_gates, input_bias).chunk(3, 1)
    hidden_r, hidden_z, hidden_n = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hx - n), gt.cat([r, z, n, hx, hidden_n], 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    """The gradients of both gates, of the state and of both biases."""
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    grad_z = grad_hy * (hx - n) * (1 - z) * z
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * (1 - r) * r
    inputs = gt.cat([grad_r, grad_z, grad_n], 1)
    hidden = gt.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * z, *biases


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
