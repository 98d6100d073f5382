"""Runs a row by its program from Python, to try a new helper and to test the rows.

The worker's loop runs programs itself (crates/python/src/worker/aten); speed is no concern here.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from gt.worker.aten.binding import Binder
from gt.worker.aten.program import RESULTS_MAX

Operand = Tensor | int | float | None


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_uint64), ("bits", ctypes.c_uint64))


@dataclasses.dataclass(frozen=True)
class Trial:
    """A helper, and the binder of its programs."""

    helper: ctypes.PyDLL
    binder: Binder

    def run(
        self,
        row: str,
        operands: Sequence[Operand | Sequence[Operand]],
        attributes: Sequence[object],
        over: int = 0,
    ) -> tuple[Tensor, ...] | None:
        """The row's results; None if no line of the table fits, or the program failed.

        Args:
            row: name of the row.
            operands: operands of the Python kernel, a list last.
            attributes: attributes of the Python kernel.
            over: operands that it overwrites, a bit each.
        """
        single = [one for one in operands if not isinstance(one, (list, tuple))]
        listed = [one for many in operands if isinstance(many, (list, tuple)) for one in many]
        arguments = [self._argument(one) for one in [*single, *listed]]
        kinds = [one.kind for one in arguments]
        bound = self.binder.bind(row, kinds[: len(single)], kinds[len(single) :], over, attributes)
        if bound is None:
            return None
        program, changing = bound
        for place, attribute in enumerate(attributes):
            if changing >> place & 1:
                assert isinstance(attribute, (int, float)), attribute
                arguments.append(self._argument(attribute))
        results = self._results(program, arguments)
        for one in arguments:
            if one.kind == 1:
                self.helper.gt_release(one.bits)
        self.helper.gt_program_free(program)
        return results

    def _results(self, program: int, given: list[_Argument]) -> tuple[Tensor, ...] | None:
        results = (ctypes.c_void_p * RESULTS_MAX)()
        count = self.helper.gt_run(program, (_Argument * len(given))(*given), results)
        if count < 0:
            return None
        tensors = tuple(self.helper.gt_to_python(handle) for handle in results[:count])
        for handle in results[:count]:
            self.helper.gt_release(handle)
        return tensors

    def _argument(self, operand: Operand | Sequence[Operand]) -> _Argument:
        if operand is None:
            return _Argument(0, 0)
        if isinstance(operand, Tensor):
            return _Argument(1, self.helper.gt_from_python(operand))
        if isinstance(operand, bool):
            return _Argument(2, int(operand))
        if isinstance(operand, int):
            return _Argument(3, operand & (1 << 64) - 1)
        assert isinstance(operand, float), operand
        return _Argument(4, ctypes.c_uint64.from_buffer(ctypes.c_double(operand)).value)


def difference(trial: Trial) -> str:
    """The first difference between the helper's results and torch's in Python; empty for none."""
    with torch.inference_mode():
        x = torch.linspace(-2, 3, 12).reshape(3, 4)
        cases: list[tuple[str, list[Operand], list[object], Tensor]] = [
            ("add", [x, x], [], x + x),
            ("mul", [x, 0.1], [], x * 0.1),
            ("matmul", [x, x.t()], [], x @ x.t()),
            ("sum", [x], [(1,), True, None], x.sum(1, keepdim=True)),
            ("permute", [x], [(1, 0)], x.t()),
            ("cast", [x], [torch.float64], x.double()),
        ]
        for row, operands, attributes, expected in cases:
            results = trial.run(row, operands, attributes)
            if results is None or not _same(results[0], expected):
                return f"the helper's {row} is not torch's"
    return ""


def _same(result: Tensor, expected: Tensor) -> bool:
    stored = (result.dtype, result.stride()) == (expected.dtype, expected.stride())
    return stored and torch.equal(result, expected)
