"""Sequences of unequal length: padded, and packed time step by time step, as in PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import gt
from gt._core import Tensor
from gt.compat import misses

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences of unequal length, without padding.

    `data` [elements, ...] has the first elements of all sequences, the longest sequence first, then
    the second elements of those that have one, and so on; `batch_sizes` [t] has their numbers.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise ValueError("batch_sizes should be given")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: object, **kwargs: object) -> PackedSequence:
        """The sequences with `data` in another dtype; a device places nothing."""
        data = self.data.to(*args, **kwargs)  # type: ignore[arg-type]
        return self if data is self.data else self._with(data)

    def _with(self, data: Tensor) -> PackedSequence:
        return PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def cuda(self, *args: object, **kwargs: object) -> PackedSequence:
        """Returns self unchanged: a device places nothing."""
        del args, kwargs
        return self

    cpu = pin_memory = cuda

    def float(self) -> PackedSequence:
        """The sequences with `data` in float32."""
        return self.to(gt.float32)

    def double(self) -> PackedSequence:
        """The sequences with `data` in float64."""
        return self.to(gt.float64)

    def half(self) -> PackedSequence:
        """The sequences with `data` in float16."""
        return self.to(gt.float16)

    def long(self) -> PackedSequence:
        """The sequences with `data` in int64."""
        return self.to(gt.int64)

    def int(self) -> PackedSequence:
        """The sequences with `data` in int32."""
        return self.to(gt.int32)

    @property
    def is_cuda(self) -> bool:
        """False: nothing is placed by hand."""
        return False

    def is_pinned(self) -> bool:
        """False: nothing is placed by hand."""
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse permutation of `permutation` [n]."""
    return None if permutation is None else permutation.argsort()


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack sequences that are padded to one length. The lengths are read.

    Args:
        input: [t, b, ...], or [b, t, ...] with `batch_first`.
        lengths: Lengths of the b sequences, each at least 1.
        batch_first: Whether the batch is the first dimension.
        enforce_sorted: Whether the longest must come first; if not, they are sorted.

    Raises:
        RuntimeError: Lengths that do not match.
    """
    lengths = lengths if isinstance(lengths, Tensor) else gt.tensor(list(lengths))
    values: list[int] = lengths.tolist()
    sorted_indices = None
    if not enforce_sorted:
        order = sorted(range(len(values)), key=lambda place: -values[place])
        sorted_indices = gt.tensor(order, dtype=gt.int64)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
        values = [values[place] for place in order]
    if batch_first:
        input = input.transpose(0, 1)  # [b, t, ...] -> [t, b, ...]
    _check_lengths(values, input)
    batch_sizes = [sum(length > step for length in values) for step in range(values[0])]
    batch = input.shape[1]
    rows = [step * batch + place for step, size in enumerate(batch_sizes) for place in range(size)]
    data = input.flatten(0, 1).index_select(0, gt.tensor(rows))
    return PackedSequence(data, gt.tensor(batch_sizes, dtype=gt.int64), sorted_indices)


def _check_lengths(lengths: list[int], input: Tensor) -> None:
    if not lengths or len(lengths) != input.shape[1]:
        raise RuntimeError(
            "Expected `len(lengths)` to be equal to batch_size, but got "
            f"{len(lengths)} (batch_size={input.shape[1]})"
        )
    if lengths[-1] <= 0 or min(lengths) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(later > earlier for earlier, later in itertools.pairwise(lengths)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if lengths[0] > input.shape[0]:
        raise RuntimeError(
            f"Expected lengths of at most {input.shape[0]}, the padded length, but got {lengths[0]}"
        )


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Padded sequences [t, b, ...] (or [b, t, ...]) and their lengths [b]. The sizes are read.

    Args:
        sequence: The result of pack_padded_sequence, or of a recurrent layer.
        batch_first: Whether the batch is the first dimension.
        padding_value: The value behind the end of shorter sequences.
        total_length: The length to pad to; the longest one's if not given.
    """
    sizes: list[int] = sequence.batch_sizes.tolist()
    longest, batch = len(sizes), sizes[0]
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but "
            f"got total_length={total_length} and max sequence length being {longest}"
        )
    length = longest if total_length is None else total_length
    starts = [sum(sizes[:step]) for step in range(longest)]
    # Index of element (step, place) in `data`; for padding that behind the last element.
    places = [
        starts[step] + place if step < longest and place < sizes[step] else len(sequence.data)
        for step in range(length)
        for place in range(batch)
    ]
    end = gt.full((1, *sequence.data.shape[1:]), padding_value, dtype=sequence.data.dtype)
    data = gt.cat([sequence.data, end]).index_select(0, gt.tensor(places))
    padded = data.reshape(length, batch, *sequence.data.shape[1:])
    lengths = gt.tensor([sum(size > place for size in sizes) for place in range(batch)])
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences [t, ...] of unequal length as one tensor [t, b, ...], or [b, t, ...].

    Args:
        sequences: At least one sequence.
        batch_first: Whether the batch is the first dimension.
        padding_value: The value that fills the shorter ones.
        padding_side: `right`, or `left` for values before the first element.
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Padding side is expected to be one of 'left' or 'right', but got {padding_side}"
        )
    if not isinstance(sequences, Iterable):
        raise RuntimeError(  # noqa: TRY004 - PyTorch's class
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    listed = list(sequences)
    if not listed:
        raise RuntimeError("received an empty list of sequences")
    length = max(sequence.shape[0] for sequence in listed)
    padded = [_padded(sequence, length, padding_value, padding_side) for sequence in listed]
    return gt.stack(padded, 0 if batch_first else 1)


def _padded(sequence: Tensor, length: int, value: float, side: str) -> Tensor:
    missing = length - sequence.shape[0]
    if not missing:
        return sequence
    rest = gt.full((missing, *sequence.shape[1:]), value, dtype=sequence.dtype)
    return gt.cat([rest, sequence] if side == "left" else [sequence, rest])


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of pad_sequence. The lengths are read."""
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    values: list[int] = lengths.tolist()
    return [batch[place, :length] for place, length in enumerate(values)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences [t, ...] of unequal length; the longest first, unless
    `enforce_sorted=False`.
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of pack_sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
