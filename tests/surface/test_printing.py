"""The text of tensors against PyTorch's, with its default options, and how much is read for it."""

import re

import numpy as np
import pytest
import torch

from gt import _core, printing

SHAPES = [
    (), (1,), (3,), (7,), (40,), (1000,), (1001,), (5000,), (2, 3), (1, 20), (30, 40), (7, 200),
    (600, 2), (2, 3, 4), (9, 9, 14), (3, 2, 2, 2), (11, 2, 9, 7), (0,), (0, 3), (2, 0),
]  # fmt: skip
SCALES = [1.0, 1e-6, 1e6, 1e9, 1e-3, 300.0]
DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "bfloat16"]


def upload(x: torch.Tensor) -> _core.Tensor:
    name = str(x.dtype).removeprefix("torch.")
    if name == "bfloat16":
        x = x.view(torch.int16)
    return _core.from_bytes(x.numpy().tobytes(), tuple(x.shape), getattr(_core, name), False)


def check(x: torch.Tensor) -> None:
    """Equal but for the shorter name of the dtype, which may stay on the line."""
    ours, theirs = printing.tensor_repr(upload(x)), repr(x).replace("torch.", "gt.")
    assert re.sub(r",\s+dtype", ", dtype", ours) == re.sub(r",\s+dtype", ", dtype", theirs)


def sample(shape: tuple[int, ...], scale: float, dtype: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    if dtype == "uint8":
        x = x.abs() % 256
    return x.clamp(-1e9, 1e9).to(getattr(torch, dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random(shape: tuple[int, ...], dtype: str) -> None:
    for seed, scale in enumerate(SCALES):
        check(sample(shape, scale, dtype, seed))
        if dtype != "bool":
            check(sample(shape, scale, dtype, seed).round())


SPECIAL = [
    [0.0, -0.0], [float("nan"), 1.5], [float("inf"), 2.0, -1.0], [float("-inf"), float("nan")],
    [1e-5, 1.0], [1e-4, 1.0], [1.0, 1000.0], [1.0, 1001.0], [0.5, 1e8], [1e8], [1e8 + 8], [-1.0],
    [float("nan")], [1e-10], [0.1, 0.25, -0.3], [1e38, 1.0], [123456.0, 0.5], [float("inf"), 0.5],
]  # fmt: skip


@pytest.mark.parametrize("values", SPECIAL, ids=str)
def test_special_values(values: list[float]) -> None:
    check(torch.tensor(values))
    check(torch.tensor(values[0]))
    check(torch.tensor(values, dtype=torch.float64))


def test_suffixes_of_the_tape() -> None:
    x = _core.from_numpy_copy(np.ones((2,), np.float32), _core.float32, True)
    assert printing.tensor_repr(x) == "tensor([1., 1.], requires_grad=True)"
    assert printing.tensor_repr(x + 1) == "tensor([2., 2.], grad_fn=<AddBackward0>)"


@pytest.mark.parametrize("width", range(56, 80))
def test_suffix_on_a_new_line(width: int) -> None:
    body = "tensor([" + "1" * (width - 9) + "]"
    expected = torch._tensor_str._add_suffixes(body, ["dtype=gt.int32", "x=1"], 7, False)
    assert printing.with_suffixes(body, ["dtype=gt.int32", "x=1"], 7, 80) == expected


def test_only_the_edges_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    x = upload(torch.zeros(500, 400))
    read, original = [], _core.read_bytes

    def counted(shown: _core.Tensor) -> bytearray:
        data = original(shown)
        read.append(len(data))
        return data

    monkeypatch.setattr(printing._core, "read_bytes", counted)
    printing.tensor_repr(x)
    assert read == [6 * 6 * 4]


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2},
        {"sci_mode": True},
        {"sci_mode": False},
        {"edgeitems": 1, "threshold": 10},
        {"linewidth": 40},
        {"profile": "short"},
        {"profile": "full"},
    ],
    ids=str,
)
def test_options(options: dict[str, object]) -> None:
    try:
        torch.set_printoptions(**options)
        printing.set_printoptions(**options)
        check(sample((40, 40), 1.0, "float32", 1))
        check(sample((5, 3), 1e5, "float64", 2))
    finally:
        torch.set_printoptions(profile="default")
        printing.set_printoptions(profile="default")
