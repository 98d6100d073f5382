"""One step of each recurrent layer, and the cells that consist of one step.

`gates` is the input's part, W x + b, [b, gates * h]; `state` is (h,) or (h, c), each [b, h].
"""

from __future__ import annotations

import math
from typing import TypeAlias

import gt
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter

State: TypeAlias = tuple[Tensor, ...]


def tanh_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """h = tanh(gates + U h + c)."""
    return ((gates + functional.linear(state[0], weight, bias)).tanh(),)


def relu_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """h = relu(gates + U h + c)."""
    return ((gates + functional.linear(state[0], weight, bias)).relu(),)


def gru_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """Reset, update and new gates; the reset gate acts on U h + c, as in cuDNN and PyTorch."""
    reset_x, update_x, new_x = gates.chunk(3, -1)  # [b, 3h] -> three of [b, h]
    reset_h, update_h, new_h = functional.linear(state[0], weight, bias).chunk(3, -1)
    reset = (reset_x + reset_h).sigmoid()
    update = (update_x + update_h).sigmoid()
    new = (new_x + reset * new_h).tanh()
    return ((state[0] - new) * update + new,)


def lstm_step(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """Input, forget, cell and output gates."""
    hidden, cell = state
    gates = gates + functional.linear(hidden, weight, bias)
    enter, forget, value, leave = gates.chunk(4, -1)  # [b, 4h] -> four of [b, h]
    cell = forget.sigmoid() * cell + enter.sigmoid() * value.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def projected(state: State, projection: Tensor | None) -> State:
    """The state with its first part [b, h] projected by `projection` [p, h], if there is one."""
    if projection is None:
        return state
    return functional.linear(state[0], projection), *state[1:]


class RNNCellBase(Module):
    """Base of the cells: parameters of one step; `num_chunks` is the number of gates in
    their rows.
    """

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(gt.empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(gt.empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(gt.empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from the uniform distribution within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for param in self.parameters():
            init.uniform_(param, -bound, bound)

    def _gates(self, input: Tensor) -> Tensor:
        if input.ndim not in (1, 2):
            raise ValueError(
                f"{self._get_name()}: Expected input to be 1D or 2D, got {input.ndim}D instead"
            )
        return functional.linear(input, self.weight_ih, self.bias_ih)

    def _zeros(self, input: Tensor) -> Tensor:
        return gt.zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN: input [b, i] and state [b, h] to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else ", nonlinearity=relu")

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        step = tanh_step if self.nonlinearity == "tanh" else relu_step
        state = (self._zeros(input) if hx is None else hx,)
        return step(self._gates(input), state, self.weight_hh, self.bias_hh)[0]


class GRUCell(RNNCellBase):
    """One step of GRU: input [b, i] and state [b, h] to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        state = (self._zeros(input) if hx is None else hx,)
        return gru_step(self._gates(input), state, self.weight_hh, self.bias_hh)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: input [b, i] and state (h, c), each [b, h], to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        state = (self._zeros(input),) * 2 if hx is None else hx
        hidden, cell = lstm_step(self._gates(input), state, self.weight_hh, self.bias_hh)
        return hidden, cell
