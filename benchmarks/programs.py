"""Rows on whole programs of examples/zoo: small operators, some with a read at every step."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
import time
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairs import Round, Row, Sides, Target

ZOO = Path(__file__).resolve().parent.parent / "examples" / "zoo"
STEPS = 20


def with_gt(source: str) -> str:
    """The program with its imports of torch replaced, and nothing else."""
    source = re.sub(r"^import torch$", "import gt as torch", source, flags=re.MULTILINE)
    return re.sub(r"^(import|from) torch\b(?!$)", r"\1 gt", source, flags=re.MULTILINE)


def program(name: str, source: str) -> types.ModuleType:
    """A module with that source text."""
    if str(ZOO) not in sys.path:
        sys.path.insert(0, str(ZOO))  # where weights.py is
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look up their module
    exec(compile(source, str(ZOO / f"{name}.py"), "exec"), module.__dict__)
    return module


@contextmanager
def _sides(name: str) -> Iterator[Sides]:
    source = (ZOO / f"{name}.py").read_text(encoding="utf-8")
    yield Sides(_run(program(name, with_gt(source))), _run(program(name, source)))


def _run(script: types.ModuleType) -> Round:
    """Milliseconds a step, from the creation of the model to the last loss."""

    def run() -> float:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            script.main(STEPS)
            return (time.perf_counter() - start) * 1e3 / STEPS

    return run


def _row(name: str, what: str) -> Row:
    goal = Target("ratio", 1.0)
    return Row(name.replace("_", "-"), what, "ms", goal, functools.partial(_sides, name), rounds=5)


ROWS = [
    _row("mnist_lstm", "an LSTM over 28 rows of 28 pixels, batch 64, Adadelta step"),
    _row("fourier_forecast", "a forecaster by `fft` and complex weights, Adam step"),
    _row("polynomial", "a cubic polynomial, three fits by small operators, a read at every step"),
    _row("gcn", "graph convolutions, Adam step"),
    _row("reinforce", "an episode of REINFORCE, a read for every action"),
    _row("actor_critic", "an episode of actor and critic, four reads for every action"),
    _row("ppo", "a PPO iteration: 32 actions with reads, four minibatches"),
]
