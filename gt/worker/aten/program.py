"""Pushes the arguments and calls of a program, of a helper's C interface (program.h, build.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

# Kinds of operands, as crates/python/src/worker/aten/abi.rs counts; `ATTRIBUTE`: a number of the
# instruction's that each run is given.
ABSENT, TENSOR, ATTRIBUTE = 0, 1, -1
RESULTS_MAX = 8  # of a program; crates/python/src/worker/aten/programs.rs
# Sources of arguments, as program.h counts.
_OPERAND, _WRAPPED, _TEMPORARY, _LIST, _OPTIONAL_LIST, _DTYPE_OF = range(1, 7)
# Functions that ATen has no operator for, or a slower one: arguments in, one tensor out.
BUILTINS = {"contiguous": 1, "placeholder": 2, "reshape": 3}
# The type of a kernel's argument: what it takes, it says itself (csrc/table).
OF_KERNEL = "argument of a kernel"
_GUARDS = {"rank": 0, "numel": 1, "real": 2}


class NotFittingError(Exception):
    """No program is for this instruction: it runs in Python."""


class Program:
    """A program that is being made; `address` is the caller's when it is finished."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._library = library
        self.address: int = library.gt_program_new()
        self._count = 0

    def free(self) -> None:
        """Frees a program that nobody gets."""
        self._library.gt_program_free(self.address)

    def guard(self, what: str, place: int, value: int = 0) -> None:
        """The program is for others where the operand at `place` has not this `rank`, and so on."""
        self._library.gt_guard(self.address, _GUARDS[what], place, value)

    def operand(self, place: int, kind: int, type_: str) -> None:
        """Pushes an operand for a schema's argument of this type."""
        is_tensor = type_ in ("Tensor", "Optional[Tensor]", "number or Tensor")
        is_number = type_ in ("number", "Optional[number]")
        is_stated = kind == ATTRIBUTE and type_ in ("int", "Optional[int]", "float")
        is_kernels = type_ == OF_KERNEL
        is_taken = is_kernels or (is_tensor if kind == TENSOR else is_number or is_stated)
        if kind == ABSENT and (is_kernels or type_.startswith("Optional")):
            self._library.gt_push_none(self.address)
        elif is_taken and kind != ABSENT:
            self._library.gt_push_operand(self.address, _OPERAND, place)
        elif kind not in (ABSENT, TENSOR) and type_ == "number or Tensor":
            self._library.gt_push_operand(self.address, _WRAPPED, place)
        else:
            raise NotFittingError

    def temporary(self, place: int) -> None:
        """Pushes a result of an earlier call."""
        self._library.gt_push_operand(self.address, _TEMPORARY, place)

    def listed(self, count: int, type_: str) -> None:
        """Makes the last `count` arguments a list."""
        source = _OPTIONAL_LIST if "Optional" in type_ else _LIST
        self._library.gt_push_collected(self.address, source, count)

    def dtype_of_last(self) -> None:
        """Makes the last argument its dtype."""
        self._library.gt_push_collected(self.address, _DTYPE_OF, 1)

    def sizes(self, place: int, count: int = -1) -> None:
        """Pushes the last `count` sizes of an operand; all, where that is negative."""
        self._library.gt_push_sizes(self.address, place, count)

    def device(self, device: torch.device) -> None:
        """Pushes a device."""
        self._option(torch.empty(0, device=device), 1)

    def constant(self, value: object, type_: str) -> None:
        """Pushes a value that does not change, as the type of the schema's argument wants it."""
        inner = type_.removeprefix("Optional[") if type_.startswith("Optional[") else type_
        push, program = self._library, self.address
        if value is None and inner == type_ and type_ != OF_KERNEL:
            raise NotFittingError
        if value is None:
            push.gt_push_none(program)
        elif isinstance(value, torch.dtype) and type_ == OF_KERNEL:
            push.gt_push_string(program, str(value).removeprefix("torch.").encode())
        elif isinstance(value, torch.dtype):
            self._option(torch.empty(0, dtype=value), 0)
        elif isinstance(value, str):
            push.gt_push_string(program, value.encode())
        elif isinstance(value, (list, tuple)):
            self._numbers(value, inner)
        elif isinstance(value, bool):
            push.gt_push_bool(program, value)
        elif isinstance(value, float) or inner.startswith("float"):
            push.gt_push_float(program, value)
        else:
            push.gt_push_int(program, value)

    def _numbers(self, values: Sequence[float], type_: str) -> None:
        push, program, count = self._library, self.address, len(values)
        if type_.startswith("List[float"):
            push.gt_push_floats(program, (ctypes.c_double * count)(*values), count)
            return
        numbers = (ctypes.c_int64 * count)(*map(int, values))
        is_bools = type_.startswith("List[bool")
        (push.gt_push_bools if is_bools else push.gt_push_ints)(program, numbers, count)

    def _option(self, example: torch.Tensor, is_device: int) -> None:
        handle = self._library.gt_from_python(example)
        self._library.gt_push_option_of(self.address, handle, is_device)
        self._library.gt_release(handle)

    def call(self, name: str, overload: str) -> range:
        """Calls aten::name with all arguments that have been pushed; the places of its results.

        Raises:
            RuntimeError: there is none of this name, or it takes another number of arguments.
        """
        text = f"aten::{name}".encode()
        count = self._library.gt_call(self.address, text, overload.encode())
        if count < 0:
            raise RuntimeError(self._library.gt_error_text().decode())
        return self._results_of(count)

    def built_in(self, name: str) -> range:
        """Calls a function of `BUILTINS` as `call` does an operator; the place of its result."""
        self._library.gt_builtin(self.address, BUILTINS[name])
        return self._results_of(1)

    def kernel(self, name: str) -> int:
        """Puts a kernel of GT's own, with all pushed arguments, before the next call.

        Returns:
            How many results it has.

        Raises:
            NotFittingError: there are no kernels, or none of this name.
        """
        count: int = self._library.gt_kernel(self.address, name.encode())
        if count < 0:
            raise NotFittingError
        return count

    def kernel_alone(self, name: str) -> range:
        """Calls a kernel of GT's own; what it does not take is for Python. Raises as `kernel`."""
        count = self.kernel(name)
        self._library.gt_kernel_alone(self.address, count)
        return self._results_of(count)

    def _results_of(self, count: int) -> range:
        self._count += count
        return range(self._count - count, self._count)

    def results(self) -> None:
        """Makes all that has been pushed the program's results."""
        self._library.gt_results(self.address)

    def state(self, dtype: torch.dtype, sizes: Sequence[int], operands: int) -> None:
        """The next result is to be this; of a program that is given so many operands."""
        example = torch.empty(tuple(sizes), dtype=dtype, device="meta")
        handle = self._library.gt_from_python(example)
        self._library.gt_state_result(self.address, handle, operands)
        self._library.gt_release(handle)
