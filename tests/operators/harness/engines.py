"""A program: runs every sample of every entry, and its gradients, in both engines of a worker.

The Python and the ATen engine must give the same bits. Values are checked by test_op_db.py:
PyTorch's own results are not compared here. Prints the findings as JSON.

    python tests/operators/harness/engines.py [--dtype float32] [part of an entry's name ...]
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
os.environ |= {"GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": ""}

import torch  # noqa: E402 - after the path
from torch.testing._internal.opinfo.core import OpInfo, SampleInput  # noqa: E402

import gt  # noqa: E402
from gt import _core  # noqa: E402
from harness.convert import (  # noqa: E402
    NotConvertible,
    from_gt,
    quietly,
    tensors,
    to_gt,
    to_gt_view,
)
from harness.drive import STRIDES_MATTER, call_ours, leaves_of, samples  # noqa: E402
from harness.entries import (  # noqa: E402
    call_of,
    dtypes_of,
    entries,
    gradient_dtype,
    title,
    unspecified,
)

Digest = str
"""Digest of a result's bytes, dtypes and shapes; or an error's class and first line."""


def digests(op: OpInfo, only: str | None) -> Iterator[tuple[str, Digest]]:
    """Digests of all samples with a name for each: values in each dtype or one, then gradients."""
    for dtype in dtypes_of(op):
        if only not in (None, str(dtype).removeprefix("torch.")):
            continue
        for number, sample in samples(op, dtype, grad=False):
            yield f"{title(op)} {dtype} sample {number}", _digest(_value, op, sample)
    dtype = gradient_dtype(op)
    if dtype is None:
        return
    for number, sample in samples(op, dtype, grad=True):
        yield f"{title(op)} gradient, sample {number}", _digest(_gradients, op, sample)


def _value(op: OpInfo, sample: SampleInput) -> object:
    is_double = getattr(sample.input, "dtype", None) == torch.float64
    to = to_gt_view if is_double and op.name not in STRIDES_MATTER else to_gt
    result = call_ours(call_of(op), sample, to)
    return _shapes(result) if unspecified(op, sample) else result


def _gradients(op: OpInfo, sample: SampleInput) -> object:
    leaves = leaves_of(sample)
    twins = [to_gt(x) for x in leaves]

    def twin(x: torch.Tensor) -> gt.Tensor:
        places = [place for place, leaf in enumerate(leaves) if leaf is x]
        return twins[places[0]] if places else to_gt(x)

    results = tensors(call_ours(call_of(op), sample, twin), gt.Tensor)
    tracked = [x for x in results if x.requires_grad]
    if not tracked:
        return None
    weights = [gt.full(tuple(x.shape), 0.75, dtype=x.dtype) for x in tracked]
    made = list(_core.grad(tracked, weights, twins, False, False))
    return _shapes(made) if unspecified(op, sample) else made


def _shapes(result: object) -> object:
    return [tuple(x.shape) for x in tensors(result, gt.Tensor)]


def _digest(
    made: Callable[[OpInfo, SampleInput], object], op: OpInfo, sample: SampleInput
) -> Digest:
    gt.manual_seed(0)
    try:
        result = quietly(lambda: made(op, sample))
        found = tensors(result, gt.Tensor)
        values = [from_gt(x) for x in found]
    except NotConvertible:
        return "not convertible"
    except Exception as error:  # noqa: BLE001 - both engines must raise the same
        return f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    parts = [(str(x.dtype), tuple(x.shape), _bits(x)) for x in values]
    plain = result if not found else None
    return hashlib.sha256(repr((parts, plain)).encode()).hexdigest()


def _bits(values: torch.Tensor) -> bytes:
    """NaN has one value, as which of two NaN a processor gives depends on their order."""
    parts = torch.view_as_real(values) if values.is_complex() else values
    if parts.is_floating_point():
        parts = torch.where(parts.isnan(), torch.nan, parts)
    return parts.reshape(-1).view(torch.uint8).numpy().tobytes() if parts.numel() else b""


def run(mode: str, names: list[str], only: str | None) -> tuple[dict[str, Digest], dict[str, int]]:
    """All digests under GT_ATEN=`mode`, and how many calls each engine ran."""
    os.environ["GT_ATEN"] = mode
    gt.disconnect()
    chosen = (op for op in entries() if not names or any(name in title(op) for name in names))
    found = {name: digest for op in chosen for name, digest in digests(op, only)}
    (stats,) = gt.debug.get_worker_stats()
    gt.disconnect()
    return found, {name: stats[name] for name in ("aten_calls", "python_calls")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of entries' names; all if none")
    parser.add_argument("--dtype", help="of the values; all of an entry's if not given")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    python, _ = run("off", asked.names, asked.dtype)
    aten, calls = run("on", asked.names, asked.dtype)
    differ = [name for name, digest in python.items() if aten.get(name) != digest]
    raised = sum(": [" in digest for digest in python.values())
    counts = {"samples": len(python), "raised": raised, "differ": differ} | calls
    json.dump(counts, sys.stdout, indent=1)
    sys.stdout.write("\n")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
