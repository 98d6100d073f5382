"""Compiles one program: `python -m gt.worker.compiled.build FOLDER KEY NICE`, with the order as a
line on its input.

It ends when its input does: nothing stays behind however a worker ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from gt.worker.compiled.artifacts import Order


def main(arguments: list[str]) -> int:
    """Entry point of the process: returns 0, or 1 with the reason on standard output."""
    folder, key, nice = pathlib.Path(arguments[0]), arguments[1], int(arguments[2])
    os.nice(nice)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    line = sys.stdin.readline()
    scratch = folder / f"{key}.tmp"
    is_ours = threading.Event()
    threading.Thread(target=_end_with_input, args=(scratch, is_ours), daemon=True).start()
    # One of two workers that want the same program compiles it.
    with (folder / f"{key}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_ours.set()
        shutil.rmtree(scratch, ignore_errors=True)  # left by a process that was killed
        scratch.mkdir()
        try:
            _compile(line, folder / f"{key}.pt2", scratch)
        except Exception as error:  # noqa: BLE001 - whatever PyTorch cannot compile runs as it is
            lines = str(error).strip().splitlines()
            sys.stdout.write(f"{type(error).__name__}: {lines[0] if lines else ''}\n")
            sys.stdout.flush()
            return 1
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _end_with_input(scratch: pathlib.Path, is_ours: threading.Event) -> None:
    """Ends this process, and the compilers that it has started, when its input ends."""
    sys.stdin.read()
    if is_ours.is_set():
        shutil.rmtree(scratch, ignore_errors=True)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _compile(line: str, path: pathlib.Path, scratch: pathlib.Path) -> None:
    # Inductor's files go to this folder, which is removed at the end.
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TMPDIR": str(scratch)}
    os.environ.update(settings)  # noqa: TID251 - read by torch, which has not been imported
    tempfile.tempdir = str(scratch)

    import torch

    from gt.worker.compiled import artifacts

    if artifacts.kept(path.stem) is not None:
        return
    order = artifacts.Order.read(line)
    torch.set_num_threads(order.threads)
    with torch.no_grad():
        written = torch._inductor.aoti_compile_and_package(  # noqa: SLF001 - its public name
            exported(order),
            package_path=str(scratch / "program.pt2"),
            inductor_configs={"cpp.threads": order.threads},
        )
    data = pathlib.Path(written).read_bytes()
    facts = scratch / "program.json"
    facts.write_text(json.dumps(artifacts.facts(data)), encoding="utf-8")
    # The last file written shows that the other is complete.
    pathlib.Path(written).replace(path)
    facts.replace(path.with_suffix(".json"))
    artifacts.shrink()


def exported(order: Order) -> ExportedProgram:
    """A program as PyTorch's graph of operators.

    Raises:
        Exception: it has a step that cannot be traced.
    """
    import torch
    from torch import Tensor

    from gt.worker.compiled import artifacts, bounds, program
    from gt.worker.pytorch import kernels
    from gt.worker.pytorch.dtypes import DTYPES

    parsed = program.parse(order.data, DTYPES)
    bounds.check_device(parsed, {form.device for form in order.forms})
    rows = bounds.checked(kernels.TORCH)
    steps = program.Kernels(rows, kernels.NUMBER_FIRST, Tensor.contiguous)

    class Whole(torch.nn.Module):
        def forward(self, *operands: Tensor) -> tuple[Tensor, ...]:
            return tuple(steps.run(parsed, operands))

    with torch.no_grad():
        examples = tuple(artifacts.example(form) for form in order.forms)
        return torch.export.export(Whole(), examples, strict=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
