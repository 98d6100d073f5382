"""Numbers beyond a dtype or of another kind, masks of other sizes, and writes into nothing."""

from typing import Any

import pytest
import torch

import gt

HALVES = ["float16", "bfloat16"]
WIDE = ["2**40", "-(2**40)", "1e30", "-1e30"]
EXPRESSIONS = [
    *(f"x.{name}(y, alpha={alpha})" for name in ("add", "sub") for alpha in ("1j", "2 - 1j")),
    "t.add(x, 3, alpha=1j)",
    "t.add(x, 2j, alpha=1j)",
    "x.clone().add_(y, alpha=1j)",
    "t.rsub(x, 2.0, alpha=2j)",
    "t.tensor([1.0]).add(t.tensor([2.0]), alpha=1j)",
    "t.tensor([1, 2]).add(t.tensor([2, 3]), alpha=1j)",
    "t.linspace(0, 1j, 3)",
    "t.linspace(1 + 1j, 2, 5)",
    "t.linspace(0, 1, 3, dtype=t.complex64)",
    "t.linspace(0, 1j, 3, dtype=t.float32)",
    "t.linspace(t.tensor(0j), t.tensor(2.0), 3)",
    "t.logspace(0, 1j, 3)",
    "t.logspace(1j, 2, 4, base=2)",
    *(
        f"t.tensor([1, 2], dtype=t.{dtype}).add(1, alpha={alpha})"
        for dtype, alpha in [
            ("int8", 300),
            ("int8", -129),
            ("uint8", 256),
            ("uint8", -1),
            ("int32", 2**40),
            ("float16", 2**40),
            ("float32", 1e300),
            ("bool", True),
        ]
    ),
    *(
        expression.format(half=f"t.tensor([1.0, 2.0], dtype=t.{half})", number=number)
        for half in HALVES
        for number in WIDE
        for expression in (
            "t.where(t.tensor([True, False]), {half}, {number})",
            "t.where(t.tensor([True, False]), {number}, {half})",
            "{half}.nan_to_num(nan={number})",
            "{half}.masked_fill(t.tensor([True, False]), {number})",
            "put({half}, 0, {number})",
            "put({half}, t.tensor([True, False]), {number})",
        )
    ),
    "t.where(t.tensor([True, False]), t.tensor([1.0, 2.0]), 1e300)",
    "t.where(t.tensor([True, False]), t.tensor([1, 2], dtype=t.int8), 300)",
    *(
        f"t.zeros({shape}).index_put(({index},), t.tensor(5.0))"
        for shape in ("3", "2, 3", "2, 0")
        for index in (
            "t.tensor([True])",
            "t.tensor([True, False])",
            "t.tensor([True, False, True])",
            "t.tensor([[True, False, True], [False, False, True]])",
            "t.tensor([1], dtype=t.uint8)",
            "t.tensor([0])",
            "[0]",
            "0",
            "slice(1)",
        )
    ),
    *(
        f"put(t.zeros(0, 0), {index}, 5)"
        for index in ("t.tensor([0, -1])", "[0]", "t.tensor([[0], [1]])", "(slice(None), [7])")
    ),
    *(
        f"{tensor}.is_contiguous(memory_format=t.{form})"
        for tensor in (
            "t.ones(2, 3)",
            "t.ones(1, 2, 3, 4)",
            "t.ones(2, 1, 1, 1)",
            "t.ones(2, 3).t()",
        )
        for form in ("contiguous_format", "channels_last", "channels_last_3d")
    ),
    "t.ones(1, 2, 1, 1, 1).is_contiguous(memory_format=t.channels_last_3d)",
    "t.ones(1, 3, 4, 2).permute(0, 3, 1, 2).is_contiguous(memory_format=t.channels_last)",
]


def put(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def outcome(t: Any, expression: str) -> tuple[str, object]:
    names = {"t": t, "x": t.tensor([1 + 1j, 2]), "y": t.tensor([2.0, 3j]), "put": put}
    try:
        made = eval(expression, names)
    except Exception as error:  # noqa: BLE001 - compared with PyTorch's
        kinds = [kind.__name__ for kind in type(error).__mro__]
        kind = next(name for name in kinds if hasattr(__import__("builtins"), name))
        return kind, None
    if isinstance(made, bool):
        return "bool", made
    return str(made.dtype).split(".")[-1], made.to(t.complex128).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_pytorch(expression: str) -> None:
    expected, got = outcome(torch, expression), outcome(gt, expression)
    assert got[0] == expected[0]
    if isinstance(expected[1], list):
        torch.testing.assert_close(
            torch.tensor(got[1]), torch.tensor(expected[1]), rtol=1e-5, atol=1e-6
        )
    else:
        assert got[1] == expected[1]


def test_parallel_cross_entropy_is_of_gt_too() -> None:
    assert gt.parallel_cross_entropy is gt.nn.parallel_cross_entropy
