"""Products with relu, or its gradient, in one: the bits of one after the other.

Which instructions run together is crates/worker/src/followed.rs, whose tests stand beside it.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from native_helper import native_helper  # noqa: E402, F401  a fixture
from spread_session import workers  # noqa: E402
from test_native_own import PRODUCTS, drawn  # noqa: E402
from test_native_rows import bits  # noqa: E402

import gt  # noqa: E402
from gt.worker import torch_products  # noqa: E402
from gt.worker.native.trial import Trial  # noqa: E402

ROWS = (Path(__file__).resolve().parent.parent / "ops.toml").read_text(encoding="utf-8")


def code(row: str) -> int:
    """As the table has it; program.h, which no generator writes, must say the same."""
    found = re.search(rf'^name = "{row}"\ncode = (\w+)$', ROWS, re.MULTILINE)
    assert found is not None, row
    return int(found[1], 16)


RELU, RELU_BACKWARD = code("relu"), code("relu_backward")


def together(
    trial: Trial,
    row: str,
    operands: list[torch.Tensor | None],
    follower: int,
    other: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """What the helper makes of both; None where it leaves them to others."""
    given = [trial._argument(one) for one in operands]
    second = trial._argument(other)
    program, _ = trial.binder.bind(row, [one.kind for one in given], [], 0, [])
    results = (ctypes.c_void_p * 1)()
    helper, count = trial.helper, len(given)
    arguments = (type(second) * count)(*given)
    ran = helper.gt_run_followed(program, arguments, follower, ctypes.byref(second), results)
    made = helper.gt_to_python(results[0]) if ran == 1 else None
    for handle in [one.bits for one in [*given, second] if one.kind == 1] + results[:][: ran > 0]:
        helper.gt_release(handle)
    helper.gt_program_free(program)
    return made


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("has_bias", [None, False, True])
def test_the_bits_of_one_after_the_other(
    native_helper: Trial,  # noqa: F811
    name: str,
    has_bias: bool | None,
) -> None:
    left, right = PRODUCTS[name]
    row, operands = "matmul", [left, right]
    if has_bias is not None:
        row = "linear"
        operands = [left, right.t(), drawn(right.shape[1]) if has_bias else None]
    with torch.inference_mode():
        product = getattr(torch_products, row)(*operands)
        gate = drawn(*product.shape)
        gate.view(-1)[:4] = torch.tensor([torch.nan, -0.0, 0.0, torch.inf])
        for follower, other, expected in (
            (RELU, None, product.relu()),
            (RELU_BACKWARD, gate, torch.ops.aten.threshold_backward(product, gate, 0)),
        ):
            made = together(native_helper, row, operands, follower, other)
            assert made is not None
            assert bits(made) == bits(expected)


@pytest.mark.parametrize(
    ("operands", "other"),
    [
        ([drawn(20, 20), drawn(20, 20)], None),
        ([drawn(80, 80, dtype=torch.float64)] * 2, None),
        ([drawn(512), drawn(512, 600)], None),
        ([drawn(80, 80)] * 2, drawn(80, 80)),  # with relu
        ([drawn(80, 80)] * 2, drawn(80, 160)[:, ::2]),
        ([drawn(80, 80)] * 2, drawn(80, 81)),
        ([drawn(80, 80)] * 2, drawn(80, 80, dtype=torch.float64)),
    ],
)
def test_others_are_left_alone(
    native_helper: Trial,  # noqa: F811
    operands: list[torch.Tensor],
    other: torch.Tensor | None,
) -> None:
    plain = other is None or (other.is_contiguous() and other.shape == (80, 80))
    follower = RELU if plain and (other is None or other.dtype == torch.float32) else RELU_BACKWARD
    with torch.inference_mode():
        assert together(native_helper, "matmul", operands, follower, other) is None


@pytest.mark.usefixtures("native_helper")
def test_a_training_has_the_bits_of_both_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers whose products are worth several threads: with relu after them they run together."""
    trained = {}
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for mode in ("off", "on"):
        monkeypatch.setenv("GT_ATEN", mode)
        with workers(1):
            gt.manual_seed(1)
            model = gt.nn.Sequential(
                gt.nn.Linear(300, 200), gt.nn.ReLU(), gt.nn.Linear(200, 200, bias=False),
                gt.nn.ReLU(), gt.nn.Linear(200, 200), gt.nn.ReLU(), gt.nn.Linear(200, 10),
            )  # fmt: skip
            optimizer = gt.optim.SGD(model.parameters(), lr=0.1)
            x, y = gt.randn(4, 100, 300), gt.randint(0, 10, (400,))
            for _ in range(20):
                optimizer.zero_grad()
                loss = gt.nn.functional.cross_entropy(model(x).view(400, 10), y)
                loss.backward()
                optimizer.step()
            values = [loss, *model.parameters()]
            trained[mode] = [one.detach().numpy().tobytes() for one in values]
    assert trained["off"] == trained["on"]
