"""Indices that are lists: as tuples where PyTorch reads them so, else as tensors."""

import warnings

import numpy as np
import pytest
import torch

import gt

LISTS = {
    "of lists": lambda lib: [[0, 1], [1, 0]],
    "of tuples": lambda lib: [(0, 1), (1, 0)],
    "of tensors": lambda lib: [lib.tensor([0, 1]), lib.tensor([1, 0])],
    "of numbers as tensors": lambda lib: [lib.tensor(0), lib.tensor(1)],
    "of arrays": lambda lib: [np.array([0, 1]), np.array([1, 0])],
    "of a mask and a list": lambda lib: [[True, False, True], [0]],
    "of a number and a list": lambda lib: [0, [1, 2]],
    "of a slice": lambda lib: [1, slice(0, 2)],
    "of nothing new": lambda lib: [None, ...],
    "of numbers": lambda lib: [0, 2, 0],
    "of truth values": lambda lib: [True, False, True],
    "of as many as a tensor has": lambda lib: [[0, 1]] * 32,
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_a_tuple_where_pytorch_reads_one(name):
    found = []
    for lib in (gt, torch):
        x = lib.arange(9.0).view(3, 3)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read = x[LISTS[name](lib)].tolist()
            x[LISTS[name](lib)] = -1.0
        texts = [str(warning.message)[:70] for warning in told]
        found.append((read, x.tolist(), texts))
        assert all(warning.filename == __file__ for warning in told)
    assert found[0] == found[1]


MASKS = {
    "of bytes": lambda lib: lib.tensor([1, 0, 2], dtype=lib.uint8),
    "of bytes, two-dimensional": lambda lib: lib.eye(3, dtype=lib.uint8),
    "of bytes behind a number": lambda lib: (0, lib.tensor([0, 1, 1], dtype=lib.uint8)),
    "of one byte": lambda lib: lib.tensor(1, dtype=lib.uint8),
    "of no byte": lambda lib: lib.tensor(0, dtype=lib.uint8),
    "of numpy's bytes": lambda lib: np.array([1, 0, 0], dtype=np.uint8),
    "of numpy's bytes, two-dimensional": lambda lib: np.eye(3, dtype=np.uint8),
    "of numpy's bools": lambda lib: np.array([True, False, True]),
    "of numpy's array of one bool": lambda lib: np.array(True),
    "of numpy's array of one byte": lambda lib: np.array(0, dtype=np.uint8),
    "no mask: numpy's byte": lambda lib: np.uint8(1),
    "no mask: numpy's number": lambda lib: np.array(2),
}


@pytest.mark.parametrize("name", MASKS)
def test_bytes_and_arrays_of_truth_values_are_masks(name):
    found = []
    for lib in (gt, torch):
        x = lib.arange(9.0).view(3, 3)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read = x[MASKS[name](lib)]
        texts = [str(warning.message).replace("gt.", "torch.")[:75] for warning in told]
        found.append((tuple(read.shape), read.tolist(), texts))
        assert all(warning.filename == __file__ for warning in told)
    assert found[0] == found[1]


def test_a_bool_of_numpys_is_no_index():
    for lib in (gt, torch):
        with pytest.raises(IndexError, match=r"^only integers, slices.* \(got numpy\.bool_?\)"):
            lib.zeros(2, 2)[np.bool_(True)]
