"""Recurrent layers over packed sequences: each step computes the sequences that still go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import gt
from gt._core import Tensor
from gt.nn import functional
from gt.nn.recurrent_step import State
from gt.nn.utils.rnn import PackedSequence

if TYPE_CHECKING:
    from collections.abc import Callable


class RecurrentLayers(Protocol):
    """What packed sequences need of RNN, LSTM and GRU."""

    num_layers: int
    bias: bool
    dropout: float
    training: bool
    _step: Callable[[Tensor, State, Tensor, Tensor | None], State]

    def _weight(self, name: str) -> Tensor: ...

    def _suffixes(self, layer: int) -> list[str]: ...

    def _starts(self, input: Tensor, state: State | None, *, batched: bool) -> list[State]: ...


def run_packed(
    layers: RecurrentLayers, packed: PackedSequence, state: State | None
) -> tuple[PackedSequence, State]:
    """The packed output and the final state, whose parts are [layers * directions, b, h].

    Args:
        layers: the layer, whose parameters and step are used.
        packed: the input; its batch sizes are read.
        state: of the sequences in their own order, or None for zeros.
    """
    sizes: list[int] = packed.batch_sizes.tolist()  # type: ignore[assignment] # it has one dimension
    if state is not None and packed.sorted_indices is not None:
        state = tuple(part.index_select(1, packed.sorted_indices) for part in state)
    starts = layers._starts(packed.data[: sizes[0]].unsqueeze(0), state, batched=True)
    finals: list[State] = []
    output = packed.data  # [elements, i]
    for layer in range(layers.num_layers):
        sides = []
        for suffix in layers._suffixes(layer):
            side, final = _direction(layers, output, sizes, starts[len(finals)], suffix)
            sides.append(side)
            finals.append(final)
        output = sides[0] if len(sides) == 1 else gt.cat(sides, dim=-1)  # [elements, directions*h]
        if layer < layers.num_layers - 1:
            output = functional.dropout(output, layers.dropout, layers.training)
    last = tuple(gt.stack([final[part] for final in finals]) for part in range(len(finals[0])))
    if packed.unsorted_indices is not None:
        last = tuple(part.index_select(1, packed.unsorted_indices) for part in last)
    return packed._with(output), last


def _direction(
    layers: RecurrentLayers, input: Tensor, sizes: list[int], state: State, suffix: str
) -> tuple[Tensor, State]:
    """One layer in one direction: [elements, i] -> [elements, h] and each sequence's last state."""
    weight = layers._weight("weight_hh" + suffix)
    bias = layers._weight("bias_hh" + suffix) if layers.bias else None
    gates = functional.linear(
        input,
        layers._weight("weight_ih" + suffix),
        layers._weight("bias_ih" + suffix) if layers.bias else None,
    )
    steps = gates.split(sizes)
    outputs: list[Tensor] = []
    for moment in reversed(steps) if suffix.endswith("_reverse") else steps:
        size = moment.shape[0]
        ahead = layers._step(moment, tuple(part[:size] for part in state), weight, bias)
        outputs.append(ahead[0])
        # The shorter sequences have ended, or have not begun in the other direction.
        state = tuple(
            new if size == old.shape[0] else gt.cat([new, old[size:]])
            for new, old in zip(ahead, state, strict=True)
        )
    if suffix.endswith("_reverse"):
        outputs.reverse()
    return gt.cat(outputs), state
