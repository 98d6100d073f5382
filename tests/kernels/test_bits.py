"""No bit depends on time: on how far a worker looks ahead, on pauses, or on addresses.

Kernels round by their operands' strides, so what a worker does when it sees that an
operand dies must not show in a result's strides. `GT_LOOK_AHEAD` and words in parts take the sight
away that a worker has in a hurry; SIGSTOP gives it more than it has at leisure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

import layout_programs as programs  # noqa: E402  torch may be absent
from harness import layouts  # noqa: E402
from harness.convert import convert, quietly, tensors, to_gt_view  # noqa: E402
from harness.drive import samples as op_samples  # noqa: E402
from harness.entries import ROWS, call_of, entries, title  # noqa: E402
from samples import SAMPLES, Given  # noqa: E402
from spread_session import workers  # noqa: E402
from test_kernels import _COMPUTED, _numpy_value, _run, _torch_attr, _torch_value  # noqa: E402
from worker_frames import ThreadWorker  # noqa: E402
from worker_processes import worker_processes  # noqa: E402
from worker_words import F32, answers, op, read  # noqa: E402

import gt  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402
from gt.worker.reference import kernels as reference  # noqa: E402

SEED = int(os.environ.get("GT_TEST_SEED", "0"))
# Instructions that a worker sees ahead: all published ones, none, or a drawn number.
SIGHTS = ("", "0", "1", "paused")
ENTRY_STRIDE = 20  # every so many of PyTorch's operators in a run, others with another seed
PROGRAMS = 4
TRAINED = 5
LEAST = 150  # results that are compared
ALIGNMENT = 64
BACKENDS = (kernels.backend(torch.device("cpu")), reference.backend())


# ---- one machine, its words in parts ----


@dataclasses.dataclass
class Stream:
    """Instructions of one program, each with what is freed behind it."""

    frames: list[bytes] = dataclasses.field(default_factory=list)
    slots: int = 0
    reads: int = 0

    def add(
        self, name: str, *operands: object, attrs: tuple[object, ...] = (), out: int = 1
    ) -> int:
        slots = tuple(range(self.slots, self.slots + out))
        self.slots += out
        self.frames.append(op(name, slots, operands, attrs))
        return slots[0]

    def upload(self, values: np.ndarray) -> int:
        array = np.ascontiguousarray(values, np.float32)
        self.slots += 1
        attrs = (values.shape, F32)
        self.frames.append(op("upload", (self.slots - 1,), (), attrs, payload=array.tobytes()))
        return self.slots - 1

    def read(self, slot: int, count: int) -> None:
        self.reads += 1
        self.frames.append(read(slot, count, self.reads))

    def free(self, *slots: int) -> None:
        self.frames += [op("free", (), (slot,)) for slot in slots]


def arranged(stream: Stream, values: np.ndarray, how: str) -> int:
    """The values in a slot: as uploaded, or through a view that is alone in its memory."""
    if how == "transposed":
        order = tuple(reversed(range(values.ndim)))
        base = stream.upload(values.transpose(order))
        slot = stream.add("permute", base, attrs=(order,))
    elif how == "sliced":
        rows = values.shape[0]
        base = stream.upload(np.concatenate([values[:1], values, values[:1]]))
        slot = stream.add("slice", base, attrs=(0, 1, rows + 1, 1))
    elif how == "expanded":
        base = stream.upload(values[:1])
        slot = stream.add("expand", base, attrs=(values.shape,))
    else:
        return stream.upload(values)
    stream.free(base)
    return slot


def chain(draw: random.Random) -> Stream:
    """Elementwise operators over operands of all strides, each dying; then products."""
    stream = Stream()
    n, m = draw.choice([(6, 4), (1, 7), (7, 1), (19, 33), (64, 48), (5, 5)])
    generator = np.random.Generator(np.random.PCG64(draw.randrange(2**31)))
    hows = ("plain", "transposed", "sliced", "expanded")

    def operand() -> int:
        return arranged(stream, generator.uniform(0.2, 2, (n, m)), draw.choice(hows))

    value = operand()
    for _ in range(draw.randint(1, 6)):
        kind = draw.choice(["unary", "binary", "number", "softmax", "cast", "update"])
        if kind == "unary":
            name = draw.choice(["exp", "tanh", "sqrt", "sigmoid", "reciprocal", "relu"])
            result, dying = stream.add(name, value), [value]
        elif kind == "binary":
            other, first = operand(), draw.random() < 0.5
            pair = (value, other) if first else (other, value)
            result = stream.add(draw.choice(["add", "mul", "sub", "div", "maximum"]), *pair)
            dying = [value, other]
        elif kind == "number":
            result, dying = stream.add("mul", value, [0.5]), [value]
        elif kind == "softmax":
            result, dying = stream.add("softmax", value, attrs=(draw.randrange(2), None)), [value]
        elif kind == "cast":
            result, dying = stream.add("cast", value, attrs=(F32,)), [value]
        else:
            grad = operand()
            attrs = (0.1, 0.0, 0.0, 0.0, False, False, True)
            result, dying = stream.add("sgd", value, grad, None, attrs=attrs, out=2), [value, grad]
            dying.append(result + 1)
        stream.free(*dying)
        value = result
    weight = stream.upload(generator.uniform(-1, 1, (11, m)))
    turned = stream.add("permute", weight, attrs=((1, 0),))
    stream.read(stream.add("matmul", value, turned), n * 11)
    flipped = stream.add("permute", value, attrs=((1, 0),))
    stream.read(stream.add("matmul", flipped, value), m * m)
    stream.read(stream.add("sum", value, attrs=((0,), False, None)), m)
    return stream


def answered(backend: object, parts: list[bytes]) -> list[bytes]:
    with ThreadWorker(backend) as worker:
        messages = answers(b"".join(worker.run(part) for part in parts))
    assert not any(message.text for message in messages), messages
    return [message.data for message in messages]


def chunks(frames: list[bytes], draw: random.Random) -> list[bytes]:
    cut = [[]]
    for frame in frames:
        cut[-1].append(frame)
        if draw.random() < 0.5:
            cut.append([])
    return [b"".join(part) for part in cut]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_words_in_chunks_give_the_same_bits(backend: object) -> None:
    for seed in range(SEED, SEED + 400):
        draw = random.Random(seed)
        stream = chain(draw)
        together = answered(backend, [b"".join(stream.frames)])
        assert len(together) == stream.reads
        assert answered(backend, stream.frames) == together, f"one by one, seed {seed}"
        assert answered(backend, chunks(stream.frames, draw)) == together, f"drawn, seed {seed}"
        blind = dataclasses.replace(backend, look_ahead=0)
        assert answered(blind, [b"".join(stream.frames)]) == together, f"blind, seed {seed}"


# ---- sessions ----


@contextlib.contextmanager
def pauses() -> Iterator[None]:
    """The workers stand still again and again, so that words gather before them."""
    ours = worker_processes()
    assert ours
    done = threading.Event()

    def stop_and_go() -> None:
        draw = random.Random(SEED)
        while not done.is_set():
            for word in (signal.SIGSTOP, signal.SIGCONT):
                for worker in ours:
                    os.kill(worker, word)
                done.wait(draw.uniform(0, 0.003))
        for worker in ours:
            os.kill(worker, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def bits(x: gt.Tensor) -> bytes:
    return x.detach().numpy().tobytes()


def trained(name: str, **options: float) -> bytes:
    """A small network after some steps, whose gradients are views of products."""
    draw = np.random.Generator(np.random.PCG64(SEED))
    inputs, targets, *weights = (
        gt.tensor(draw.standard_normal(shape).astype("float32"))
        for shape in ((8, 4), (8, 1), (6, 4), (6,), (1, 6))
    )
    for weight in weights:
        weight.requires_grad_()
    optimizer = getattr(gt.optim, name)(weights, **options)
    for _ in range(8):
        optimizer.zero_grad()
        hidden = (inputs @ weights[0].T + weights[1]).tanh()
        ((hidden @ weights[2].T - targets) ** 2).mean().backward()
        optimizer.step()
    return b"".join(bits(weight) for weight in weights)


def training(_: int) -> dict[str, bytes]:
    """By optimizer; several times, which must be one result already."""
    results = {}
    for name, options in OPTIMIZERS:
        several = {trained(name, **options) for _ in range(TRAINED)}
        assert len(several) == 1, f"{len(several)} results of {name}"
        results[name] = several.pop()
    return results


OPTIMIZERS = [
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.2}),
    ("AdamW", {"lr": 0.02}),
]


@functools.cache
def program(seed: int, count: int) -> list[programs.Step]:
    """The program of a seed; its layouts are on so many workers."""
    members = ",".join(map(str, range(count)))

    def layout(shape: tuple[int, ...], draw: random.Random) -> str:
        if count == 1:
            return layouts.WHOLE
        kinds = ["replicate", *(f"shard({dim})" for dim in range(len(shape)))]
        return f"{draw.choice(kinds)}@[{members}]"

    return programs.program(seed, layout)


def random_programs(count: int) -> dict[str, bytes]:
    """Every value of each, and a product of what it is turned and of temporaries that die."""
    results = {}
    for seed in range(SEED, SEED + PROGRAMS):
        values: dict[programs.Name, gt.Tensor] = {}
        products: dict[str, gt.Tensor] = {}
        for step in program(seed, count):
            value = values[step.out] = (
                layouts.place(values[step.args[0]], step.args[1])
                if step.operator == "place"
                else programs.ours(step, values)
            )
            if value.ndim >= 2 and value.is_floating_point():
                single = value.float()
                value = (single.transpose(-1, -2) * 2).tanh() @ single.exp()
            products[str(step)] = value
        results |= {f"{seed} {step}": bits(value) for step, value in products.items()}
    return results


def samples(count: int) -> dict[str, bytes]:
    """PyTorch's samples of its operators, in views, spread where there are several workers."""

    def spread(x: torch.Tensor) -> gt.Tensor:
        value = to_gt_view(x)
        if count > 1 and value.ndim and value.numel():
            value = gt.distribute(value, dim=0)
        return value

    gt.manual_seed(0)
    results_by_case = {}
    for entry in entries()[SEED % ENTRY_STRIDE :: ENTRY_STRIDE]:
        for number, sample in op_samples(entry, torch.float32, grad=False):
            try:
                args = [convert(x, spread) for x in (sample.input, *sample.args)]
                kwargs = convert(sample.kwargs, spread)
                results = quietly(lambda: call_of(entry)(*args, **kwargs))  # noqa: B023
                words = b"".join(bits(one) for one in tensors(results, gt.Tensor))
            except Exception as error:  # noqa: BLE001 - the same everywhere
                words = type(error).__name__.encode()
            results_by_case[f"{title(entry)} {number}"] = words
    return results_by_case


@pytest.mark.timeout(240)
@pytest.mark.parametrize("count", [1, 3])
def test_what_a_worker_sees_changes_no_bit(count: int) -> None:
    """Nor does it when workers are paused while a program is emitted."""
    results: dict[str, dict[str, bytes]] = {}
    for sight in SIGHTS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GT_LOOK_AHEAD", "" if sight == "paused" else sight)
            patch.setenv("GT_BACKEND", "pytorch")
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
            with workers(count):
                gt.ones(1).item()  # from now on there are workers
                with pauses() if sight == "paused" else contextlib.nullcontext():
                    results[sight] = {
                        name: data
                        for part in (training, random_programs, samples)
                        for name, data in part(count).items()
                    }
    first = results[SIGHTS[0]]
    assert len(first) > LEAST
    for sight, data in results.items():
        assert data.keys() == first.keys()
        wrong = [name for name in first if data[name] != first[name]]
        assert not wrong, f"GT_LOOK_AHEAD={sight}, seed {SEED}: {wrong}"


# ---- addresses ----


# Their results are operands' memory.
VIEWS = {name for name, row in ROWS.items() if "view" in row}


def moved(value: object, offset: int) -> object:
    """A copy of a value so many bytes behind a multiple of the alignment."""
    if isinstance(value, list):
        return [moved(one, offset) for one in value]
    if isinstance(value, torch.Tensor):
        count = value.numel() * value.element_size()
        room = torch.empty(count + 2 * ALIGNMENT, dtype=torch.uint8)
        start = -room.data_ptr() % ALIGNMENT + offset
        copy = room[start : start + count].view(value.dtype).view(value.shape)
        return copy.copy_(value)
    if isinstance(value, np.ndarray):
        room = np.empty(value.nbytes + 2 * ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT + offset
        copy = np.ndarray(value.shape, value.dtype, room.data, start)
        copy[...] = value
        return copy.view(type(value))
    return value


def result_bytes(result: object) -> bytes:
    if isinstance(result, torch.Tensor):
        return result.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return np.ascontiguousarray(result).tobytes()


@pytest.mark.parametrize("name", _COMPUTED)
def test_the_allocators_address_changes_nothing(name: str) -> None:
    """An allocator gives multiples of 16 bytes, of 64 under torch, which is what it promises."""
    for place, sample in enumerate(SAMPLES[name]):
        if not any(isinstance(one, Given | list) for one in sample.operands):
            continue
        attrs = [_torch_attr(attr) for attr in sample.attrs]
        theirs, ours = set(), set()
        for offset in (0, 16, 32, 48):
            with torch.inference_mode():
                operands = [moved(_torch_value(one), offset) for one in sample.operands]
                results = _run(kernels.TORCH, name, operands, attrs)
                if name not in VIEWS:
                    assert all(one.data_ptr() % ALIGNMENT == 0 for one in results if one.numel())
                theirs.add(tuple(map(result_bytes, results)))
            with reference.quiet():
                operands = [moved(_numpy_value(one), offset) for one in sample.operands]
                results = _run(reference.NUMPY, name, operands, list(sample.attrs))
                ours.add(tuple(map(result_bytes, results)))
        assert len(theirs) == len(ours) == 1, f"sample {place}"


def test_memory_for_uploads_and_transfers_is_aligned() -> None:
    allocate = BACKENDS[0].allocate
    buffers = [allocate((size,), torch.float32) for size in (1, 3, 17, 1000, 100_000, 20_000_000)]
    assert all(one.data_ptr() % ALIGNMENT == 0 for one in buffers)
