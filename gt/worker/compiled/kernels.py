"""Rows `compile` and `call` of the torch backend."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gt import config
from gt.worker.backend import Kernel
from gt.worker.compiled import artifacts, program
from gt.worker.compiled.artifacts import Compilations, Form, Order
from gt.worker.compiled.program import COMPILING, READY, REFUSED, Program

_ANSWERS = {"compiling": COMPILING, "ready": READY, "refused": REFUSED}
# Length of the statement of one result without dimensions.
_ONE_NUMBER = 2


class Programs:
    """The programs of one worker.

    Args:
        rows: Kernel of each row.
        number_first: Kernels for a number as the first operand.
        dtypes: Dtypes by their number on the wire.
        threads: Number of threads of a large instruction.
        meta: Number of a value's dtype, and its size.
    """

    def __init__(
        self,
        rows: Mapping[str, Kernel],
        number_first: Mapping[str, Kernel],
        dtypes: Sequence[object],
        threads: int,
        meta: program.Meta,
    ) -> None:
        self._kernels = program.Kernels(rows, number_first, Tensor.contiguous)
        self._dtypes, self._threads, self._meta = dtypes, threads, meta
        self._compilations = Compilations()
        self._refusals: set[str] = set()
        self._is_eager = config.compilation() == "eager"

    def kernels(self) -> dict[str, Kernel]:
        """Kernels by row."""
        return {"compile": self._compile, "call": self._call}

    def _compile(
        self, data: Tensor, operands: list[Tensor], results: Sequence[int]
    ) -> tuple[Tensor, ...]:
        if len(results) > _ONE_NUMBER:
            return (self._stage(data, operands), torch.tensor(_clock(operands)))
        return (self._stage(data, operands),)

    def _stage(self, data: Tensor, operands: list[Tensor]) -> Tensor:
        if self._is_eager:
            return torch.tensor(READY)
        order = self._order(self._parsed(data), operands)
        try:
            word, reason = self._compilations.state(order)
        except OSError as error:  # the cache folder cannot be written, or no process started
            word, reason = "refused", str(error)
        if reason and order.key() not in self._refusals:
            self._refusals.add(order.key())
            sys.stderr.write(f"gt.worker: a program is not compiled: {reason}\n")
        return torch.tensor(_ANSWERS[word])

    def _call(
        self, data: Tensor, operands: list[Tensor], results: Sequence[int]
    ) -> tuple[Tensor, ...]:
        parsed = self._parsed(data)
        run, forms = self._runner(data, parsed, operands)
        fitted = None if run is None else artifacts.fitted(operands, forms)
        made = None
        if run is not None and fitted is not None:
            try:
                made = run(fitted)
            except RuntimeError:
                made = None  # what is wrong with the operands is said by the steps themselves
        if made is None:
            made = self._kernels.run(parsed, operands)
        program.check_results(made, results, self._meta)
        return _own(made, operands)

    def _parsed(self, data: Tensor) -> Program:
        # The tensor's object lives as long as the program does.
        parsed: Program | None = getattr(data, "_gt_program", None)
        if parsed is None:
            parsed = program.parse(data.cpu().numpy().tobytes(), self._dtypes)
            data._gt_program = parsed  # type: ignore[attr-defined]  # noqa: SLF001 # of our own
        return parsed

    def _order(self, parsed: Program, operands: Sequence[Tensor]) -> Order:
        return Order(parsed.data, tuple(map(Form.of, operands)), self._threads)

    def _runner(
        self, data: Tensor, parsed: Program, operands: Sequence[Tensor]
    ) -> tuple[Callable[..., Any] | None, tuple[Form, ...]]:
        """The compiled program and the forms that it takes; None where its steps are run."""
        known = getattr(data, "_gt_runner", None)
        if known is not None:
            return known
        known = (None, ())
        if not self._is_eager:
            order = self._order(parsed, operands)
            word, _ = self._compilations.state(order)
            if word == "compiling":
                return known  # another worker has compiled it; nobody waits here until this one has
            path = artifacts.kept(order.key())
            known = (None if path is None else _load(path), order.forms)
        data._gt_runner = known  # type: ignore[attr-defined]  # noqa: SLF001 # of our own
        return known


def _clock(operands: Sequence[Tensor]) -> int:
    """Nanoseconds, once the operands' device has done what it was sent."""
    for device in {one.device for one in operands if one.is_cuda}:
        torch.cuda.synchronize(device)
    return time.perf_counter_ns()


def _load(path: object) -> Callable[..., Any]:
    # torch._inductor.aoti_load_package imports half of PyTorch's compiler, for seconds in which
    # nothing runs, and then makes this object.
    package: Any = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)  # noqa: SLF001

    def run(operands: Sequence[Tensor]) -> Sequence[Tensor]:
        made: Sequence[Tensor] = package.boxed_run(list(operands))
        return made

    return run


def _own(made: Sequence[Tensor], operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results, each with memory of its own."""
    taken = {one.untyped_storage().data_ptr() for one in operands}
    own = []
    for one in made:
        address = one.untyped_storage().data_ptr()
        own.append(one.clone() if address in taken else one)
        taken.add(address)
    return tuple(own)
