"""RNN, LSTM and GRU over sequences. The computation of one step is in recurrent_step.py."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, overload

import gt
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.nn.recurrent_packed import run_packed
from gt.nn.recurrent_sequence import (
    Sequence,
    gru_sequence,
    lstm_sequence,
    projected_sequence,
    relu_sequence,
    run,
    tanh_sequence,
)
from gt.nn.recurrent_step import (
    State,
    gru_step,
    lstm_step,
    projected,
    relu_step,
    tanh_step,
)
from gt.nn.utils.rnn import PackedSequence

Sequences: TypeAlias = Tensor | PackedSequence  # [t, b, i] or [b, t, i] or [t, i], or packed
Step: TypeAlias = Callable[[Tensor, State, Tensor, Tensor | None], State]


class _Kind(NamedTuple):
    gates: int  # number of blocks of hidden_size in the weights
    step: Step  # computes one step
    sequence: Sequence  # computes all steps by one instruction
    state_size: int  # number of tensors in the state


_KINDS = {
    "RNN_TANH": _Kind(1, tanh_step, tanh_sequence, 1),
    "RNN_RELU": _Kind(1, relu_step, relu_sequence, 1),
    "GRU": _Kind(3, gru_step, gru_sequence, 1),
    "LSTM": _Kind(4, lstm_step, lstm_sequence, 2),
}


def _check_options(
    mode: str, hidden_size: int, num_layers: int, dropout: float, proj_size: int
) -> None:
    if mode not in _KINDS:
        raise ValueError("Unrecognized RNN mode: " + mode)
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if hidden_size > 0 and proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and num_layers=1",
            stacklevel=4,
        )


class RNNBase(Module):
    """Base of RNN, GRU and LSTM: parameters, layers and directions, and the loop over time.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM". The other arguments are those of the three.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_options(mode, hidden_size, num_layers, dropout, proj_size)
        gates, self._step, self._sequence, self._state_size = _KINDS[mode]
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        output_size = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            width = input_size if layer == 0 else output_size * directions
            for suffix in self._suffixes(layer):
                shapes: list[tuple[str, tuple[int, ...]]] = [
                    ("weight_ih", (gates * hidden_size, width))
                ]
                shapes.append(("weight_hh", (gates * hidden_size, output_size)))
                shapes += [
                    (name, (gates * hidden_size,)) for name in ("bias_ih", "bias_hh") if bias
                ]
                if proj_size:
                    shapes.append(("weight_hr", (proj_size, hidden_size)))
                for name, shape in shapes:
                    value = gt.empty(*shape, device=device, dtype=dtype)
                    self.register_parameter(name + suffix, Parameter(value))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: 2 if self.bidirectional else 1]

    @property
    def _all_weights(self) -> list[list[str]]:
        """Names of the parameters, a list for each layer and direction."""
        kinds = ["weight_ih", "weight_hh"]
        kinds += ["bias_ih", "bias_hh"] if self.bias else []
        kinds += ["weight_hr"] if self.proj_size else []
        suffixes = [suffix for n in range(self.num_layers) for suffix in self._suffixes(n)]
        return [[kind + suffix for kind in kinds] for suffix in suffixes]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Weights and biases, a list for each layer and direction."""
        return [[self._weight(name) for name in names] for names in self._all_weights]

    def reset_parameters(self) -> None:
        """Draw all parameters from the uniform distribution within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for param in self.parameters():
            init.uniform_(param, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: there is no memory to arrange."""

    def _run(self, input: Sequences, state: State | None) -> tuple[Sequences, State]:
        """Input [t, b, i] (or batch first, unbatched, packed) to the output and the final state."""
        if isinstance(input, PackedSequence):
            self._check_width(input.data)
            return run_packed(self, input, state)
        self._check_input(input)
        batched = input.ndim == 3
        time_first = input.transpose(0, 1) if batched and self.batch_first else input
        if not batched:
            time_first = input.unsqueeze(1)  # [t, i] -> [t, 1, i]
        if not time_first.shape[0]:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        starts = self._starts(time_first, state, batched=batched)
        finals: list[State] = []
        output = time_first
        for layer in range(self.num_layers):
            sides = []
            for suffix in self._suffixes(layer):
                side, final = self._direction(output, starts[len(finals)], suffix)
                sides.append(side)
                finals.append(final)
            output = (
                sides[0] if len(sides) == 1 else gt.cat(sides, dim=-1)
            )  # [t, b, directions * h]
            if layer < self.num_layers - 1:
                output = functional.dropout(output, self.dropout, self.training)
        last = tuple(
            gt.stack([final[part] for final in finals]) for part in range(self._state_size)
        )
        if not batched:
            return output.squeeze(1), tuple(part.squeeze(1) for part in last)
        return (output.transpose(0, 1) if self.batch_first else output), last

    def _weight(self, name: str) -> Tensor:
        """A weight or bias: a parameter, or the value that a hook or a parametrization computes."""
        weight: Tensor = getattr(self, name)
        return weight

    def _projection(self, suffix: str) -> Tensor | None:
        """The projection [p, h] of the hidden states; None without proj_size."""
        return self._weight("weight_hr" + suffix) if self.proj_size else None

    def _sequence_with(self, projection: Tensor | None) -> Sequence:
        """The function that runs all steps at once."""
        if projection is None:
            return self._sequence
        return functools.partial(projected_sequence, projection)

    def _direction(self, input: Tensor, state: State, suffix: str) -> tuple[Tensor, State]:
        """One layer in one direction: [t, b, i] -> [t, b, h] and the state after the last step."""
        reverse = suffix.endswith("_reverse")
        weights = self._weight("weight_ih" + suffix), self._weight("weight_hh" + suffix)
        names = ("bias_ih" + suffix, "bias_hh" + suffix)
        biases = [self._weight(name) if self.bias else None for name in names]
        projection = self._projection(suffix)
        sequence = self._sequence_with(projection)
        states = run(sequence, input, state, weights, (biases[0], biases[1]), reverse=reverse)
        if states is not None:
            return states[0], tuple(part[0 if reverse else -1] for part in states)
        # the inputs of all steps at once: [t, b, i] -> [t, b, gates * h]
        gates = functional.linear(input, weights[0], biases[0])
        order = range(input.shape[0])
        outputs = []
        for moment in reversed(order) if reverse else order:
            state = projected(self._step(gates[moment], state, weights[1], biases[1]), projection)
            outputs.append(state[0])
        if reverse:
            outputs.reverse()
        return gt.stack(outputs), state

    def _starts(self, input: Tensor, state: State | None, *, batched: bool) -> list[State]:
        """The first state of each layer and direction, each part [b, h]."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: self._state_size]
        if state is None:
            zeros = (gt.zeros(input.shape[1], width, dtype=input.dtype) for width in widths)
            return [tuple(zeros)] * count
        whole = state if batched else tuple(part.unsqueeze(1) for part in state)
        for place, (part, width) in enumerate(zip(whole, widths, strict=True)):
            expected = (count, input.shape[1], width)
            if tuple(part.shape) != expected:
                name = f"hidden[{place}]" if self._state_size > 1 else "hidden"
                raise RuntimeError(f"Expected {name} size {expected}, got {list(part.shape)}")
        return [tuple(part[place] for part in whole) for place in range(count)]

    def _check_input(self, input: Tensor) -> None:
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead"
            )
        self._check_width(input)

    def _check_width(self, input: Tensor) -> None:
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.shape[-1]}"
            )

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0.0),
            ("bidirectional", False),
        ):
            value = self.__dict__[name]
            if value != default:
                text += f", {name}={value}"
        return text


class RNN(RNNBase):
    """The Elman network: h = tanh(W x + b + U h + c).

    Args:
        input_size: Width of the input.
        hidden_size: Width of state and output.
        num_layers: Number of stacked layers.
        nonlinearity: "tanh" or "relu".
        bias: Whether the biases b and c exist.
        batch_first: Input and output are [b, t, …] instead of [t, b, …].
        dropout: Probability of dropping an element between layers, in training.
        bidirectional: Whether a second chain runs backwards; outputs are concatenated.
        device: Accepted and ignored.
        dtype: Dtype of the parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            "RNN_" + nonlinearity.upper(),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    @overload
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: Tensor | None = None
    ) -> tuple[PackedSequence, Tensor]: ...
    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        output, (last,) = self._run(input, None if hx is None else (hx,))
        return output, last


class GRU(RNNBase):
    """The gated recurrent unit; arguments as RNN's, without nonlinearity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )

    @overload
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: Tensor | None = None
    ) -> tuple[PackedSequence, Tensor]: ...
    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        output, (last,) = self._run(input, None if hx is None else (hx,))
        return output, last


class LSTM(RNNBase):
    """The long short-term memory; arguments as RNN's, without nonlinearity.

    With proj_size, a linear layer without bias projects each hidden state and output to that width.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    @overload
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...
    def forward(
        self, input: Sequences, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Sequences, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = self._run(input, hx)
        return output, (hidden, cell)
