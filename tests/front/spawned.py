"""The functions of test_program_imports.py's processes, in a module that imports no torch."""

import signal
import sys

import gt


def double(at, queue, x):
    queue.put((at, (x * 2).tolist()))


def fail(at, code):
    if at == 0:
        return
    if code == "raise":
        raise ValueError("a mistake of the function")
    if isinstance(code, signal.Signals):
        signal.raise_signal(code)
    sys.exit(code)


def join_group(at):
    gt.distributed.init_process_group("gloo", rank=at, world_size=2)
