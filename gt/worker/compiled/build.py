"""Compiles one program: `python -m gt.worker.compiled.build FOLDER KEY`, with the order on its input.

It ends when its input does: nothing stays behind however a worker ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import threading

_NICE_MAX = 19


def main(arguments: list[str]) -> int:
    """Entry point of the process: returns 0, or 1 with the reason on standard output."""
    folder, key = pathlib.Path(arguments[0]), arguments[1]
    os.nice(_NICE_MAX)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _compile(line, folder / f"{key}.pt2", pathlib.Path(scratch))
    except Exception as error:  # noqa: BLE001 - whatever PyTorch cannot compile runs as it is
        lines = str(error).strip().splitlines()
        sys.stdout.write(f"{type(error).__name__}: {lines[0] if lines else ''}\n")
        sys.stdout.flush()
        return 1
    return 0


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def _compile(line: str, path: pathlib.Path, scratch: pathlib.Path) -> None:
    # Inductor's files go to this folder, which is removed at the end.
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TMPDIR": str(scratch)}
    os.environ.update(settings)  # noqa: TID251 - read by torch, which has not been imported
    tempfile.tempdir = str(scratch)

    import torch
    from torch import Tensor

    from gt.worker.compiled import artifacts, program
    from gt.worker.pytorch import kernels

    order = artifacts.Order.read(line)
    torch.set_num_threads(order.threads)
    parsed = program.parse(order.data, kernels.DTYPES)
    rows = program.Kernels(kernels.TORCH, kernels.NUMBER_FIRST, Tensor.contiguous)

    class Whole(torch.nn.Module):
        def forward(self, *operands: Tensor) -> tuple[Tensor, ...]:
            return tuple(rows.run(parsed, operands))

    with torch.no_grad():
        examples = tuple(artifacts.example(form) for form in order.forms)
        exported = torch.export.export(Whole(), examples, strict=False)
        written = torch._inductor.aoti_compile_and_package(  # noqa: SLF001 - its public name
            exported,
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
