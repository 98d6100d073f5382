"""Memory stays flat in client, dispatcher and worker, however long a loop runs."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import gt

PAGE = os.sysconf("SC_PAGE_SIZE")
GROWTH = 8 << 20  # bytes that a client may grow by: allocators keep some of what they had
WARM = 2_000
LENGTHS = [
    20_000,
    pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]


class Held(NamedTuple):
    """Values and bytes held by the dispatcher and by the worker."""

    values: int
    slots: int
    worker_values: int
    worker_bytes: int


def held() -> Held:
    """Once everything emitted so far has run, and every free has been sent."""
    (worker,) = gt.debug.get_worker_stats()
    counters = gt.debug.stats()
    return Held(counters["values"], counters["worker_slots"], worker["values"], worker["bytes"])


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def stays_flat(body: Callable[[], object], count: int) -> None:
    """Nothing is held after `count` more turns of the loop than after the first ones."""
    for _ in range(WARM):
        body()
    before, size = held(), resident()
    for _ in range(count):
        body()
    assert held() == before
    assert resident() - size < GROWTH


@pytest.mark.parametrize("count", LENGTHS)
def test_updates_in_place_stay_flat(count: int) -> None:
    """The training step by hand."""
    w, g, lr = gt.randn(8, 8, requires_grad=True), gt.ones(8, 8), 1e-3

    def body() -> None:
        nonlocal w
        w -= lr * g

    with gt.no_grad():
        stays_flat(body, count)
    assert w.requires_grad
    assert w.is_leaf


@pytest.mark.parametrize("count", LENGTHS)
def test_dropped_results_stay_flat(count: int) -> None:
    """Values without a reference are freed, also with a tape."""
    x = gt.randn(8, 8, requires_grad=True)

    def body() -> None:
        (x * 2).relu()

    stays_flat(body, count)


@pytest.mark.parametrize("count", [2_000])
def test_steps_with_gradients_stay_flat(count: int) -> None:
    """Forward, backward, update, grad cleared."""
    model = gt.nn.Linear(4, 4)
    optimizer = gt.optim.SGD(model.parameters(), lr=1e-3)
    x = gt.randn(2, 4)

    def body() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    stays_flat(body, count)


@pytest.mark.parametrize("backward", [False, True])
def test_a_graph_of_50_000_operations_is_freed(backward: bool) -> None:
    """One after the other, not each inside the one before: the stack would not do."""
    x = gt.ones(4, requires_grad=True)
    before = held()
    y = x
    for _ in range(50_000):
        y = y * 1.0
    if backward:
        y.sum().backward()
        assert x.grad.tolist() == [1.0] * 4
        x.grad = None
    del y
    assert held() == before  # frees that waited for room in the ring have been sent


def test_synchronize_sends_the_frees_that_waited_for_room() -> None:
    """More of them than the ring holds, while the worker is busy: no next operation is needed."""
    x = gt.ones(4)
    gt.synchronize()
    before = gt.debug.stats()["values"]
    values = [x + 1 for _ in range(100_000)]
    gt.ones(1_000, 1_000) @ gt.ones(1_000, 1_000)
    values.clear()
    gt.synchronize()
    assert gt.debug.stats()["values"] == before


@pytest.mark.parametrize("backend", ["pytorch", "numpy"])
def test_memory_counts_once_and_as_long_as_a_value_is_in_it(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views and expanded values count nothing of their own; a reshape that has to copy does."""
    if backend == "pytorch":
        pytest.importorskip("torch")
    gt.disconnect()
    monkeypatch.setenv("GT_BACKEND", backend)
    x = gt.ones(100, 50) + 0
    full = 100 * 50 * 4

    def worker_bytes() -> int:
        (worker,) = gt.debug.get_worker_stats()
        return worker["bytes"]

    assert worker_bytes() == full
    views = [x[3], x.t(), x.reshape(50, 100), x.expand(7, 100, 50), x[::2, 1:].t()[3]]
    assert worker_bytes() == full
    copy = x.t().reshape(-1)
    assert worker_bytes() == 2 * full
    del x, views[1:]
    assert worker_bytes() == 2 * full  # a row keeps all of the matrix
    del views[0]
    assert worker_bytes() == full
    del copy
    zero = gt.zeros(()) + 0
    many = zero.expand(1_000)
    assert worker_bytes() == 4
    del zero, many
    assert worker_bytes() == 0
    gt.disconnect()


PEAK = """
import sys
from gt.tools.demo.model import Sizes, char_gpt

def mlp(lib, batch):
    nn = lib.nn
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return model, lib.randn(batch, 784), lib.zeros(batch, dtype=lib.int64)

def gpt(lib, batch):
    sizes = Sizes(vocabulary=65, context=64, width=64, heads=4, layers=2)
    model = lib.nn.Sequential(char_gpt(lib, sizes), lib.nn.Flatten(0, 1))
    text = lib.zeros(batch, sizes.context, dtype=lib.int64)
    return model, text, text.reshape(-1)

def train(lib, make, optimizer, batch):
    model, x, y = make(lib, batch)
    optimizer = getattr(lib.optim, optimizer)(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() > 0

def gt_peak(*how):
    import gt
    train(gt, *how)
    return gt.debug.get_worker_stats()[0]["bytes_peak"]

def torch_peak(*how):
    import torch
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=cpu) as profile:
        train(torch, *how)
    events = [one for one in profile.profiler.kineto_results.events() if one.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak

how = {"mlp": mlp, "gpt": gpt}[sys.argv[1]], sys.argv[2], int(sys.argv[3])
print(gt_peak(*how), torch_peak(*how))
"""


@pytest.mark.parametrize(
    ("model", "optimizer", "batch"),
    [
        ("mlp", "AdamW", 64),
        ("mlp", "AdamW", 1024),
        ("mlp", "SGD", 8),
        ("mlp", "SGD", 64),
        ("mlp", "SGD", 1024),
        ("gpt", "SGD", 1),
        ("gpt", "AdamW", 8),
    ],
)
def test_a_training_step_needs_no_more_than_torch(model: str, optimizer: str, batch: int) -> None:
    """Peak bytes of live tensors on the worker beside what torch's allocator hands out."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PEAK, model, optimizer, str(batch)]
    settings = os.environ | {"GT_BACKEND": "pytorch", "GT_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    ours, theirs = map(int, done.stdout.split())
    assert ours <= 1.05 * theirs


def test_a_dead_tensor_says_nothing_of_those_in_its_place() -> None:
    """The record of a freed tensor is not applied to tensors that reuse its slot."""
    leaf = gt.ones(3, requires_grad=True)
    for _ in range(100):
        product = leaf * 2
        loss = (product * product).sum()
        del product
        others = [gt.zeros(3) for _ in range(8)]
        for other in others:
            other.add_(1)
        loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [800.0, 800.0, 800.0]


def test_tensors_end_on_other_threads() -> None:
    """Values, nodes of the tape and views that other threads let go are freed as everywhere."""

    def work() -> None:
        leaf = gt.ones(3, requires_grad=True)
        pairs = [(leaf * k, leaf[1:].detach()) for k in range(50)]
        pairs.clear()

    def run() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run()
    before = held()
    for _ in range(20):
        run()
    assert held() == before
