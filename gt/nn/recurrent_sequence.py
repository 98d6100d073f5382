"""A recurrent layer over a whole sequence as one instruction, in one direction.

Workers with torch have these operators (gt/tensors/aten/own.txt). On other workers a layer goes
step by step, by the functions of recurrent_step.py, which define the computation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn import functional
from gt.nn.recurrent_step import State
from gt.tensors.aten.call import call

# (input [t, b, i], first state, weights of input and state, biases, reverse) -> the state after
# each step, whose parts are [t, b, h]; the first one is the output.
Sequence: TypeAlias = Callable[
    [Tensor, State, Tensor, Tensor, Tensor | None, Tensor | None, bool], State
]


def run(
    sequence: Sequence,
    input: Tensor,
    state: State,
    weights: tuple[Tensor, Tensor],
    biases: tuple[Tensor | None, Tensor | None],
    *,
    reverse: bool,
) -> State | None:
    """The states of `sequence`; None if no worker has the operator, or there is no step.

    Under autocast only LSTM runs as a sequence: a step of the others works in several dtypes.
    """
    is_cast = sequence is not lstm_sequence and _core.autocast_region() is not None
    if is_cast or not input.shape[0]:
        return None
    try:
        return sequence(input, state, *weights, *biases, reverse)
    except NotSupported:
        return None


def lstm_sequence(
    input: Tensor,
    state: State,
    weight: Tensor,
    weight_state: Tensor,
    bias: Tensor | None,
    bias_state: Tensor | None,
    reverse: bool,
) -> State:
    """LSTM; both biases are added to the input's part."""
    gates = functional.linear(input, weight, _sum(bias, bias_state))
    hidden, cell, weight_state = _like(gates, *state, weight_state)
    output, cells, _ = call("lstm_layer", (gates, hidden, cell, weight_state, reverse), {})
    return output, cells


def projected_sequence(
    projection: Tensor,
    input: Tensor,
    state: State,
    weight: Tensor,
    weight_state: Tensor,
    bias: Tensor | None,
    bias_state: Tensor | None,
    reverse: bool,
) -> State:
    """LSTM whose hidden state is the cell's output times `projection` [p, h]."""
    gates = functional.linear(input, weight, _sum(bias, bias_state))
    operands = _like(gates, *state, weight_state, projection)
    output, cells = call("lstm_projected", (gates, *operands, reverse), {})
    return output, cells


def gru_sequence(
    input: Tensor,
    state: State,
    weight: Tensor,
    weight_state: Tensor,
    bias: Tensor | None,
    bias_state: Tensor | None,
    reverse: bool,
) -> State:
    """GRU; the state's bias is inside the reset gate."""
    gates = functional.linear(input, weight, bias)
    return (call("gru_layer", (gates, state[0], weight_state, bias_state, reverse), {})[0],)


def rnn_sequence(
    relu: bool,
    input: Tensor,
    state: State,
    weight: Tensor,
    weight_state: Tensor,
    bias: Tensor | None,
    bias_state: Tensor | None,
    reverse: bool,
) -> State:
    """RNN; both biases are added to the input's part."""
    gates = functional.linear(input, weight, _sum(bias, bias_state))
    return (call("rnn_layer", (gates, state[0], weight_state, relu, reverse), {}),)


relu_sequence: Sequence = functools.partial(rnn_sequence, True)
tanh_sequence: Sequence = functools.partial(rnn_sequence, False)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other


def _like(gates: Tensor, *values: Tensor) -> State:
    """The values in the dtype of `gates`, which autocast may have lowered."""
    return tuple(x if x.dtype == gates.dtype else x.to(gates.dtype) for x in values)
