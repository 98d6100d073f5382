"""Gradients of many views of one value: PyTorch's numbers, and work that grows with the length."""

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import views_work
from spread_session import workers

import gt

RESULT = re.compile(r"(?:%\S+ )+= (\w+) .*# \w+\[([\d,]*)\]")

Program = Callable[[ModuleType, Any], Any]  # the library and x, [6, 4] -> a scalar


def weighted(parts: Any) -> Any:
    """A sum in which each part counts otherwise, and not linearly."""
    return sum((part * part * (place + 1.5)).sum() for place, part in enumerate(parts))


def computed_too(y: Any) -> Any:
    return weighted([y, *y.unbind(0), y[1:3]])


def written(y: Any) -> Any:
    for t in range(6):
        y[t].mul_(t + 1.0)
    return weighted(y)


PROGRAMS: dict[str, Program] = {
    "index": lambda _, x: weighted(x[t] for t in range(6)),
    "index from the back": lambda _, x: weighted(x[-t] for t in range(1, 7)),
    "index of some": lambda _, x: weighted(x[t] for t in (4, 1)),
    "index of one": lambda _, x: weighted([x[3]]),
    "one index often": lambda _, x: weighted(x[2] for _ in range(5)),
    "columns": lambda _, x: weighted(x[:, t] for t in range(4)),
    "columns of rows": lambda _, x: weighted(x[1:5, t] for t in range(4)),
    "elements": lambda _, x: weighted(x[i, j] for i in range(6) for j in range(4)),
    "rows of columns": lambda _, x: weighted(x[t, 1:3] for t in range(6)),
    "select": lambda _, x: weighted(x.select(1, t) for t in (3, 0, 1)),
    "unbind": lambda _, x: weighted(x.unbind(0)),
    "unbind dim 1": lambda _, x: weighted(x.unbind(1)[:3]),
    "split": lambda _, x: weighted(x.split(4)),
    "split with sizes": lambda _, x: weighted(x.split([1, 3, 2])),
    "split with an empty slice": lambda _, x: weighted(x.split([1, 0, 5])),
    "chunk": lambda _, x: weighted(x.chunk(3, 1)),
    "chunk, one unused": lambda _, x: weighted(x.chunk(3)[::2]),
    "narrow": lambda _, x: weighted(x.narrow(0, t, 2) for t in (0, 2, 4)),
    "windows": lambda _, x: weighted(x[t : t + 3] for t in range(4)),
    "beginnings": lambda _, x: weighted(x[: t + 1] for t in range(6)),
    "endings": lambda _, x: weighted(x[t:] for t in range(6)),
    "steps": lambda _, x: weighted(x[t::2] for t in range(2)),
    "steps with slices": lambda _, x: weighted([x[::2], x[1:3], x[3], x[1::3]]),
    "rows and columns": lambda _, x: weighted([*x.unbind(0), *x.unbind(1)]),
    "whole and rows": lambda _, x: weighted([x, *x.unbind(0)]),
    "whole and one row": lambda _, x: weighted([x, x[2], x.exp(), x[2:4]]),
    "index and slices": lambda _, x: weighted([x[0], x[1:4], x[5]]),
    "diagonals": lambda _, x: weighted([x.diagonal(), x.diagonal(1), x.diagonal(-1), x[0]]),
    "transposed": lambda _, x: weighted(x.transpose(0, 1)[t] for t in range(4)),
    "reshaped": lambda _, x: weighted(x.reshape(3, 2, 4)[t] for t in range(3)),
    "unfold and rows": lambda _, x: weighted([x.unfold(0, 2, 1), x[1], x[2]]),
    "expanded": lambda _, x: weighted([x[t].expand(3, 4)[1] for t in range(6)]),
    "views of views": lambda _, x: weighted(x[1:][:3][t : t + 2] for t in range(2)),
    "of computed": lambda lib, x: weighted((x * 2).tanh().unbind(0)),
    "computed, whole too": lambda lib, x: computed_too(x.tanh()),
    "recurrence": lambda lib, x: weighted(
        itertools.accumulate(x.unbind(0), lambda h, v: (h + v).tanh())
    ),
    "joined again": lambda lib, x: weighted([lib.stack(x.unbind(0)[::-1]), lib.cat(x.split(2, 1))]),
    "written": lambda lib, x: written(x * 1),
}


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32)


def leaf(library: ModuleType, array: np.ndarray) -> Any:
    return library.tensor(array.tolist()).requires_grad_()


def close(mine: Any, its: Any, name: str = "") -> None:
    np.testing.assert_allclose(
        np.array(mine.tolist()), its.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=name
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradient(name: str) -> None:
    grads = []
    for library in (gt, torch):
        x = leaf(library, values())
        PROGRAMS[name](library, x).backward()
        PROGRAMS[name](library, x).backward()  # adds to .grad
        grads.append(x.grad)
    close(*grads)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_gradient(name: str) -> None:
    seconds = []
    for library in (gt, torch):
        x = leaf(library, values())
        (first,) = library.autograd.grad(PROGRAMS[name](library, x), x, create_graph=True)
        again = library.autograd.grad((first * first * first).sum(), x, create_graph=True)[0]
        again.exp().clamp(max=3.0).sum().backward()
        seconds.append((first, again, x.grad))
    for mine, its in zip(*seconds, strict=True):
        close(mine, its)


def test_gradients_of_a_cut_value() -> None:
    with workers(2):
        for (name, program), dim in itertools.product(PROGRAMS.items(), (0, 1)):
            layout = gt.Layout(gt.DeviceMesh(2), (6, 4), dim)
            x = gt.distribute(gt.tensor(values().tolist()), layout).requires_grad_()
            y = leaf(torch, values())
            program(gt, x).backward()
            program(torch, y).backward()
            close(x.grad, y.grad, name)


def test_gradients_of_values_in_between() -> None:
    results = []
    for library in (gt, torch):
        x = leaf(library, values())
        y = x * 3
        z = y[1:5]
        loss = weighted([*z.unbind(0), y[0]])
        (of_view,) = library.autograd.grad(loss, z, retain_graph=True)
        y.retain_grad()
        z.retain_grad()
        loss.backward()
        results.append((x.grad, y.grad, z.grad, of_view))
    for mine, its in zip(*results, strict=True):
        close(mine, its)


def test_a_given_gradient_is_not_written() -> None:
    x = gt.ones(4, 3, requires_grad=True)
    y = x * 1
    seed = gt.ones(4, 3)
    (grad,) = gt.autograd.grad([y, y[0], y[1:3]], x, [seed, gt.ones(3), gt.ones(2, 3)])
    assert seed.tolist() == [[1.0] * 3] * 4
    assert grad.tolist() == [[2.0] * 3] * 3 + [[1.0] * 3]


def work(folder: Path) -> Iterator[tuple[str, int, bool, int, int]]:
    """Each pass: program, length, whether it is a second one, instructions, elements of results."""
    log = folder / "log.txt"
    subprocess.run(
        [sys.executable, str(Path(views_work.__file__))],
        env=os.environ | {"GT_INSTRUCTION_LOG": str(log)},
        check=True,
        timeout=50,
    )
    names = itertools.product(views_work.PROGRAMS, views_work.LENGTHS, (False, True))
    instructions = elements = 0
    for line in log.read_text().splitlines():
        if line.startswith("read"):
            yield *next(names), instructions, elements
            instructions = elements = 0
        elif match := RESULT.match(line):
            instructions += 1
            is_view = match[1] in ("select", "slice", "permute", "expand", "reshape")
            is_in_place = "!" in line.partition(" # ")[0]
            elements += (
                0
                if is_view or is_in_place
                else math.prod(map(int, filter(None, match[2].split(","))))
            )


def test_work_grows_with_the_length(tmp_path: Path) -> None:
    passes = {(name, length, second): rest for name, length, second, *rest in work(tmp_path)}
    short, long = views_work.LENGTHS
    assert len(passes) == 4 * len(views_work.PROGRAMS)
    too_much = [
        (name, second, passes[name, short, second], passes[name, long, second])
        for name in views_work.PROGRAMS
        for second in (False, True)
        for less, more in zip(passes[name, short, second], passes[name, long, second], strict=True)
        if more > 2.25 * less
    ]
    assert not too_much
