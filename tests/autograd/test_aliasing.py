"""PyTorch's aliasing: random programs of views and in-place writes, same results and errors.

A failing program is made as short as it can be and printed as Python, with its seed.
"""

import warnings
from collections.abc import Callable

import aliasing_programs
import numpy as np
import pytest
import torch
from aliasing_programs import LONG_FROM, run

import gt

PROGRAMS = 500  # of each kind, short and long
PROGRAMS_SLOW = 10_000
BATCH = 100  # programs a test
# PyTorch raises where GT need not: writes through views save nothing here, so nothing was freed.
LENIENT = "through the graph a second time"


def outcome(line: str, names: dict[str, object]) -> Exception | None:
    try:
        run(line, names)
    except Exception as error:  # noqa: BLE001 - compared with PyTorch's
        return error
    return None


Outcomes = list[Exception | None]


def plainly(lines: list[str], names: dict[str, object]) -> Outcomes:
    return [outcome(line, names) for line in lines]


def difference(
    lines: list[str], run_ours: Callable[[list[str], dict[str, object]], Outcomes] = plainly
) -> str | None:
    """Difference between GT's and PyTorch's run of a program; None where there is none."""
    theirs: dict[str, object] = {"T": torch}
    ours: dict[str, object] = {"T": gt}
    # PyTorch's backward pass sees writes through `.data` to what was saved; GT's does not.
    finished = not any(".data" in line for line in lines)
    expectations: Outcomes = []
    for line in lines:
        expectations.append(outcome(line, theirs))
        if expectations[-1] is not None and "backward" in line:
            finished = False  # which gradients had arrived before the error is nobody's promise
            break
    outcomes = run_ours(lines[: len(expectations)], ours)
    for number, (expected, got) in enumerate(zip(expectations, outcomes, strict=True)):
        if isinstance(expected, NameError):
            continue
        if problem := different_errors(expected, got):
            return f"line {number + 1}: {problem}"
    for name, x in theirs.items():
        if isinstance(x, torch.Tensor) and (problem := different(x, ours.get(name), finished)):
            return f"{name}: {problem}"
    return None


def different_errors(expected: Exception | None, got: Exception | None) -> str | None:
    if expected is None and got is None:
        return None
    if LENIENT in str(expected):
        return None
    if expected is None or got is None:
        return f"torch: {expected!r}, gt: {got!r}"
    known = beginning(expected)
    if not known or any(
        text.startswith(("A view was created in", "unsupported operation"))
        for text in (known, str(got))
    ):
        return None  # two mistakes in one line: which is found first is nobody's promise
    if isinstance(got, type(expected)) and str(got).lower().startswith(known.lower()):
        return None
    return f"torch: {type(expected).__name__}: {known}\n     gt: {type(got).__name__}: {got}"


def beginning(error: Exception) -> str:
    """The part of PyTorch's text that GT keeps: without the names of PyTorch's own functions."""
    text = str(error).splitlines()[0]
    for end in (
        ", which is output",
        " is at version",
        "no_grad mode and",
        "Output ",
        ".  Tensor sizes",
        "CPU",
        " Hint:",
    ):
        text = text.split(end)[0]
    return text.rstrip(".")


def different(x: torch.Tensor, y: object, finished: bool) -> str | None:
    if not isinstance(y, gt.Tensor):
        return f"gt has {y!r}"
    try:
        leaf = x.is_leaf
    except RuntimeError as error:  # a slice of a tensor that was written since: PyTorch raises
        return None if isinstance(outcome("y.is_leaf", {"y": y}), type(error)) else f"no {error}"
    facts = {
        "shape": (tuple(x.shape), tuple(y.shape)),
        "dtype": (str(x.dtype).removeprefix("torch."), repr(y.dtype).removeprefix("gt.")),
        "requires_grad": (x.requires_grad, y.requires_grad),
        "is_leaf": (leaf, y.is_leaf),
        "strides": (strides(x), strides(y)),
        "version": (x._version, y._version),
    }
    for fact, (theirs, ours) in facts.items():
        if theirs != ours:
            return f"{fact}: torch {theirs}, gt {ours}"
    if problem := different_values(x.detach(), y.detach()):
        return problem
    if not finished:
        return None
    grad, mine = x.grad, y.grad
    if grad is None or mine is None:
        return None if grad is None and mine is None else f"grad: torch {grad}, gt {mine}"
    problem = different_values(grad, mine)
    return f"grad: {problem}" if problem else None


def strides(x: torch.Tensor | gt.Tensor) -> list[int]:
    """Strides of dimensions that are walked: of others nobody sees them."""
    if 0 in x.shape:
        return []
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def different_values(x: torch.Tensor, y: gt.Tensor) -> str | None:
    rough = x.dtype == torch.bfloat16
    theirs = (x.float() if rough else x).numpy(force=True)
    ours = (y.float() if rough else y).detach().numpy()
    bounds = {"rtol": 0.02, "atol": 0.02} if rough else {"rtol": 1e-5, "atol": 1e-6}
    if np.allclose(ours, theirs, **bounds, equal_nan=True):
        return None
    return f"torch {theirs.tolist()}, gt {ours.tolist()}"


def shortest(lines: list[str]) -> list[str]:
    """The program without every line that the difference does not need."""
    size = len(lines) // 2 or 1
    while size:
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            if fewer and difference(fewer):
                lines = fewer
            else:
                at += size
        size //= 2
    return lines


# Programs that rely on behaviour which PyTorch does not promise.
KNOWN = {
    11343: "the zeros that are the gradient of what was overwritten have no history",
    13697: "the zeros that are the gradient of what was overwritten have no history",
    16962: "PyTorch refuses a write of integers, which have no history, for what their view is",
    17081: "the gradient of nothing has no history in PyTorch",
}


def check(seed: int) -> None:
    if seed in KNOWN:
        return
    lines = aliasing_programs.program(seed)
    if difference(lines):
        lines = shortest(lines)
        text = "\n".join(lines)
        pytest.fail(f"seed {seed}: {difference(lines)}\n# T is torch, or gt\n{text}", pytrace=False)


def check_batch(batch: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(batch * BATCH, (batch + 1) * BATCH):
            check(seed)


FIRST = (0, LONG_FROM)


def batches(start: int, stop: int) -> list[int]:
    return [(first + at) // BATCH for first in FIRST for at in range(start, stop, BATCH)]


@pytest.mark.parametrize("batch", batches(0, PROGRAMS))
def test_programs(batch: int) -> None:
    check_batch(batch)


@pytest.mark.slow
@pytest.mark.parametrize("batch", batches(PROGRAMS, PROGRAMS_SLOW))
def test_many_programs(batch: int) -> None:
    check_batch(batch)
