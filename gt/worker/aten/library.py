"""The helper's C interface: what build.cpp, memory.cpp and run.cpp export, by name."""

from __future__ import annotations

import ctypes
import pathlib

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_LONG, _WORD, _TEXT = ctypes.c_int64, ctypes.c_uint32, ctypes.c_char_p
_LONGS = ctypes.POINTER(ctypes.c_int64)

SHOW = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

# C signatures of the functions that Python calls: result, then arguments.
_FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "gt_torch_version": (_TEXT, []),
    "gt_error_text": (_TEXT, []),
    "gt_program_new": (_POINTER, []),
    "gt_program_free": (None, [_POINTER]),
    "gt_push_none": (None, [_POINTER]),
    "gt_push_bool": (None, [_POINTER, _INT]),
    "gt_push_int": (None, [_POINTER, _LONG]),
    "gt_push_float": (None, [_POINTER, ctypes.c_double]),
    "gt_push_string": (None, [_POINTER, _TEXT]),
    "gt_push_ints": (None, [_POINTER, _LONGS, _SIZE]),
    "gt_push_bools": (None, [_POINTER, _LONGS, _SIZE]),
    "gt_push_floats": (None, [_POINTER, ctypes.POINTER(ctypes.c_double), _SIZE]),
    "gt_push_sizes": (None, [_POINTER, _SIZE, _LONG]),
    "gt_push_option_of": (None, [_POINTER, _POINTER, _INT]),
    "gt_push_operand": (None, [_POINTER, _WORD, _SIZE]),
    "gt_push_collected": (_INT, [_POINTER, _WORD, _SIZE]),
    "gt_guard": (None, [_POINTER, _WORD, _SIZE, _LONG]),
    "gt_call": (_INT, [_POINTER, _TEXT, _TEXT]),
    "gt_builtin": (None, [_POINTER, _WORD]),
    "gt_kernel": (_INT, [_POINTER, _TEXT]),
    "gt_kernel_alone": (None, [_POINTER, _SIZE]),
    "gt_set_threads": (None, [_POINTER, _INT, _POINTER]),
    "gt_set_kernels": (None, [_POINTER, _POINTER, _INT, _INT]),
    "gt_results": (None, [_POINTER]),
    "gt_state_result": (None, [_POINTER, _POINTER, _SIZE]),
    "gt_from_python": (_POINTER, [ctypes.py_object]),
    "gt_to_python": (ctypes.py_object, [_POINTER]),
    "gt_run": (_INT, [_POINTER, _POINTER, _POINTER]),
    "gt_run_joined": (_INT, [_POINTER, _SIZE, _POINTER]),
    "gt_run_group": (_INT, [_POINTER, _POINTER, _SIZE, _SIZE, _POINTER]),
    "gt_release": (None, [_POINTER]),
    "gt_to_host": (_POINTER, [_POINTER]),
    "gt_write": (_INT, [_POINTER, ctypes.c_uint64, _TEXT, ctypes.c_uint64]),
    "gt_set_warnings": (None, [SHOW]),
    "gt_memory_install": (None, [ctypes.c_uint64]),
    "gt_memory_release": (None, []),
    "gt_memory_kept": (ctypes.c_uint64, []),
}
# Functions that the worker's loop calls, in the order of crates/python/src/worker/aten/abi.rs.
LOOP = (
    "gt_run",
    "gt_run_joined",
    "gt_run_group",
    "gt_release",
    "gt_from_python",
    "gt_to_python",
    "gt_describe",
    "gt_copy",
    "gt_to_host",
    "gt_write",
    "gt_program_free",
)


def load(path: pathlib.Path) -> ctypes.PyDLL:
    """The helper library in this file, with its functions typed.

    Raises:
        OSError: it cannot be loaded, or lacks a function.
    """
    # PyDLL keeps the interpreter's lock: every call here is short, and most need the lock.
    library = ctypes.PyDLL(str(path))
    try:
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        addresses(library)
    except AttributeError as error:
        raise OSError(f"{path.name}: {error}") from None
    return library


def addresses(library: ctypes.PyDLL) -> list[int]:
    """Addresses of the functions of `LOOP`."""
    return [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in LOOP]
