"""Recurrent layers over packed sequences.

All steps are one instruction over the padded sequences: padding follows the elements and so does
not affect them; for the other direction each sequence is reversed first. Without that instruction,
each step computes the sequences that have not ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import gt
from gt._core import Tensor
from gt.nn import functional
from gt.nn.recurrent_sequence import Sequence, run
from gt.nn.recurrent_step import State, projected
from gt.nn.utils.rnn import PackedSequence

if TYPE_CHECKING:
    from collections.abc import Callable


class RecurrentLayers(Protocol):
    """Attributes of RNN, LSTM and GRU that packed sequences need."""

    num_layers: int
    bias: bool
    dropout: float
    training: bool
    _step: Callable[[Tensor, State, Tensor, Tensor | None], State]

    def _weight(self, name: str) -> Tensor: ...

    def _projection(self, suffix: str) -> Tensor | None: ...

    def _sequence_with(self, projection: Tensor | None) -> Sequence: ...

    def _suffixes(self, layer: int) -> list[str]: ...

    def _starts(self, input: Tensor, state: State | None, *, batched: bool) -> list[State]: ...


def run_packed(
    layers: RecurrentLayers, packed: PackedSequence, state: State | None
) -> tuple[PackedSequence, State]:
    """The packed output and the final state, whose parts are [layers * directions, b, h].

    Args:
        layers: the layer with the parameters and the step.
        packed: the input; its batch sizes are read.
        state: state in the sequences' own order, or None for zeros.
    """
    sizes: list[int] = packed.batch_sizes.tolist()
    if state is not None and packed.sorted_indices is not None:
        state = tuple(part.index_select(1, packed.sorted_indices) for part in state)
    starts = layers._starts(packed.data[: sizes[0]].unsqueeze(0), state, batched=True)
    paddings: dict[bool, _Padding] = {}  # by direction; equal for all layers
    finals: list[State] = []
    output = packed.data  # [elements, i]
    for layer in range(layers.num_layers):
        sides = []
        for suffix in layers._suffixes(layer):
            start = starts[len(finals)]
            reverse = suffix.endswith("_reverse")
            if reverse not in paddings:
                paddings[reverse] = _padding(sizes, reverse=reverse)
            whole = _at_once(layers, output, paddings[reverse], start, suffix)
            side, final = whole or _direction(layers, output, sizes, start, suffix)
            sides.append(side)
            finals.append(final)
        output = sides[0] if len(sides) == 1 else gt.cat(sides, dim=-1)  # [elements, directions*h]
        if layer < layers.num_layers - 1:
            output = functional.dropout(output, layers.dropout, layers.training)
    last = tuple(gt.stack([final[part] for final in finals]) for part in range(len(finals[0])))
    if packed.unsorted_indices is not None:
        last = tuple(part.index_select(1, packed.unsorted_indices) for part in last)
    return packed._with(output), last


class _Padding(NamedTuple):
    """Maps between packed elements and [t, b], row by row."""

    length: int
    # Element for each place of [t, b]; padding has the sequence's last one, so that a NaN stays in
    # its sequence.
    elements: Tensor
    # Place of each element, and of each sequence's last element.
    places: Tensor
    lasts: Tensor


def _padding(sizes: list[int], *, reverse: bool) -> _Padding:
    """Args: sizes, of each step; reverse, whether each sequence is reversed."""
    batch = sizes[0]
    lengths = [sum(size > place for size in sizes) for place in range(batch)]
    places = [
        (lengths[place] - 1 - step if reverse else step) * batch + place
        for step, size in enumerate(sizes)
        for place in range(size)
    ]
    element_of = {place: element for element, place in enumerate(places)}
    lasts = [(length - 1) * batch + place for place, length in enumerate(lengths)]
    elements = [
        element_of.get(place, element_of[lasts[place % batch]])
        for place in range(len(sizes) * batch)
    ]
    return _Padding(len(sizes), gt.tensor(elements), gt.tensor(places), gt.tensor(lasts))


def _at_once(
    layers: RecurrentLayers, input: Tensor, padding: _Padding, state: State, suffix: str
) -> tuple[Tensor, State] | None:
    """The result of _direction by one instruction; None if no instruction does it."""
    weights = (layers._weight("weight_ih" + suffix), layers._weight("weight_hh" + suffix))
    names = ("bias_ih" + suffix, "bias_hh" + suffix) if layers.bias else ()
    biases = tuple(map(layers._weight, names)) or (None, None)
    padded = input.index_select(0, padding.elements)
    padded = padded.unflatten(0, (padding.length, -1))  # [t, b, i]
    sequence = layers._sequence_with(layers._projection(suffix))
    states = run(sequence, padded, state, weights, (biases[0], biases[1]), reverse=False)
    if states is None:
        return None
    rows = [part.flatten(0, 1) for part in states]  # [t * b, h]
    output = rows[0].index_select(0, padding.places)
    return output, tuple(part.index_select(0, padding.lasts) for part in rows)


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
    projection = layers._projection(suffix)
    steps = gates.split(sizes)
    outputs: list[Tensor] = []
    for moment in reversed(steps) if suffix.endswith("_reverse") else steps:
        size = moment.shape[0]
        ahead = layers._step(moment, tuple(part[:size] for part in state), weight, bias)
        ahead = projected(ahead, projection)  # [b, h] -> [b, p]
        outputs.append(ahead[0])
        # The shorter sequences have ended, or in the other direction have not begun.
        state = tuple(
            new if size == old.shape[0] else gt.cat([new, old[size:]])
            for new, old in zip(ahead, state, strict=True)
        )
    if suffix.endswith("_reverse"):
        outputs.reverse()
    return gt.cat(outputs), state
