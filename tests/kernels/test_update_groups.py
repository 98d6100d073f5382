"""Updates that a worker executes in one call have the bits that they have one by one.

crates/worker/src/tests/group.rs is about which updates are executed together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from spread_session import workers  # noqa: E402

import gt  # noqa: E402
from gt.optim import SGD, Adam, AdamW, Optimizer  # noqa: E402

SHAPES = [(), (1,), (7,), (0,), (64,), (5, 3), (257,), (2, 3, 4), (33, 31), (1, 1), (16,), (1025,)]
# Calls of 24 updates: a worker reads so many words of its stream at a time that a dozen of AdamW's
# are among them.
CALLS_MAX = 4
BACKENDS = {
    "python": {"GT_BACKEND": "pytorch", "GT_ATEN": "off", "CUDA_VISIBLE_DEVICES": ""},
    "aten": {"GT_BACKEND": "pytorch", "GT_ATEN": "on", "CUDA_VISIBLE_DEVICES": ""},
    "native": {"GT_BACKEND": "native"},
}
Make = Callable[[list[gt.Tensor]], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd maximize": lambda p: SGD(p, lr=0.1, maximize=True),
    "sgd decay": lambda p: SGD(p, lr=0.1, weight_decay=0.01),
    "sgd momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
    "sgd nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: Adam(p, lr=0.01, weight_decay=0.1),
    "adam amsgrad": lambda p: Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, capturable=True),
    "adamw amsgrad": lambda p: AdamW(p, lr=0.01, amsgrad=True),
}


@contextlib.contextmanager
def busy_worker() -> Iterator[None]:
    """Keeps the worker busy, so that instructions emitted here queue before it sees the first."""
    x = gt.full((1200, 1200), 1e-4)
    gt.ones(1).item()
    for _ in range(3):
        x = x @ x
    yield


def parameters(count: int, dtype: gt.dtype) -> list[gt.Tensor]:
    shapes = [SHAPES[place % len(SHAPES)] for place in range(count)]
    return [gt.randn(*shape).to(dtype).requires_grad_() for shape in shapes]


def gradient(parameter: gt.Tensor) -> gt.Tensor:
    """A gradient as of backward passes, not contiguous for a matrix."""
    shape = tuple(parameter.shape)
    drawn = gt.randn(*shape[::-1]).t() if len(shape) == 2 else gt.randn(*shape)
    return drawn.to(parameter.dtype)


def calls() -> int:
    (row,) = gt.debug.get_worker_stats()
    return int(row["aten_calls"]) + int(row["python_calls"])


def trained(make: Make, parameters: list[gt.Tensor], steps: int = 3) -> tuple[list[bytes], int]:
    """Bytes of parameters and states after a few steps, and the calls of the last one."""
    optimizer = make(parameters)
    for _ in range(steps - 1):
        for one in parameters:
            one.grad = gradient(one)
        optimizer.step()
    before = calls()
    with busy_worker():
        optimizer.step()
    made = calls() - before
    states = [
        value
        for one in parameters
        for value in optimizer.state[one].values()
        if isinstance(value, gt.Tensor)
    ]
    kept = [one.detach().float().numpy().tobytes() for one in [*parameters, *states]]
    return kept, made


def run(count: int, dtypes: list[gt.dtype]) -> dict[str, tuple[list[bytes], int]]:
    results = {}
    with workers(1):
        gt.ones(1).item()  # has started: that may take longer than a question for counters waits
        for name, make in OPTIMIZERS.items():
            gt.manual_seed(5)
            mixed = [one for dtype in dtypes for one in parameters(count, dtype)]
            results[name] = trained(make, mixed)
    return results


@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.usefixtures("aten_helper")
def test_groups_have_the_bits_of_single_updates(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in BACKENDS[backend].items():
        monkeypatch.setenv(name, value)
    for count, dtypes in ((24, [gt.float32]), (4, [gt.float32, gt.bfloat16])):
        grouped = run(count, dtypes)
        monkeypatch.setenv("GT_LOOK_AHEAD", "0")
        single = run(count, dtypes)
        monkeypatch.delenv("GT_LOOK_AHEAD")
        for name in OPTIMIZERS:
            assert grouped[name][0] == single[name][0], f"{name}: {count} of {dtypes}"
            saved = single[name][1] - grouped[name][1]
            updates = count * len(dtypes)
            assert saved >= updates - CALLS_MAX, f"{name}: {count} of {dtypes}"
            assert saved <= updates - len(dtypes), f"{name}: {count} of {dtypes}"


@pytest.mark.usefixtures("aten_helper")
def test_a_large_update_is_a_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is worth several threads, with which its bits are those that it has elsewhere."""
    for name, value in BACKENDS["aten"].items():
        monkeypatch.setenv(name, value)
    made = {}
    for look_ahead in ("0", ""):
        monkeypatch.setenv("GT_LOOK_AHEAD", look_ahead)
        with workers(1):
            gt.manual_seed(5)
            shapes = [(512, 512), (8,), (9,), (600, 300)]
            made[look_ahead] = trained(
                OPTIMIZERS["adamw"], [gt.randn(*shape).requires_grad_() for shape in shapes]
            )
    assert made["0"][0] == made[""][0]
    assert made["0"][1] - made[""][1] == 1
