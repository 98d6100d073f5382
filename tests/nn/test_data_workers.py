"""Worker processes beside PyTorch's: batches, seeds, errors, deaths, and that nothing is left."""

import gc
import multiprocessing
import os
import random
import re
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from data_worker_programs import Items, Scaled, TwoTexts, breaks, exits, is_killed
from test_utils_data import plain
from torch.utils import data as theirs
from torch.utils.data._utils.worker import _generate_state

import gt
from gt.utils import data as ours

BOTH = [(gt, ours), (torch, theirs)]
WEIGHTS = {}  # tensors of this module


@pytest.fixture(autouse=True)
def weights():
    """Made for each test: others end the session."""
    WEIGHTS.update({library: library.arange(8.0) for library, _ in BOTH})


class Holder:
    """A tensor as an attribute of a class and of an object."""

    def __init__(self, tensor):
        self.nested = {"deep": [(tensor,)]}


def items(library, data, name):
    """A dataset by name, which computes with its library in the worker."""
    table = data.TensorDataset(library.arange(24.0).reshape(8, 3), library.arange(8))
    weights, leaf = library.arange(8.0), library.ones(8, requires_grad=True)
    holder, rows = Holder(weights), library.arange(16.0).reshape(8, 2)
    view = rows[:, 1]
    made = {
        "int": int,
        "float": lambda i: i / 2,
        "bool": lambda i: i % 2 == 0,
        "array": lambda i: np.full(3, i, "float32"),
        "numpy number": np.int16,
        "large": lambda i: np.full((150, 150), i, "float64"),
        "strided": lambda i: np.arange(12.0).reshape(3, 4).T[:, i % 3],
        "number tensor": library.tensor,
        "tuple": lambda i: (np.ones(2) * i, i, str(i), library.tensor([i, 1])),
        "from_numpy": lambda i: library.from_numpy(np.arange(4, dtype="uint8") + i).float() / 255,
        "half": lambda i: library.full((2,), i, dtype=library.bfloat16),
        "empty": lambda i: library.zeros(0, 3),
        "leaf": lambda i: library.full((2,), float(i), requires_grad=True),
        "dict": lambda i: {"a": i, "b": library.ones(2) * i, "c": {"d": np.float32(i)}},
        "closure": lambda i: weights[i] * 2,
        "global": lambda i: WEIGHTS[library][i] + 1,
        "attribute": lambda i: holder.nested["deep"][0][0][i],
        "view": lambda i: (view[i], rows[i]),
        "no grad": lambda i: leaf.detach()[i] * 3,
        "wrapped": lambda i: (table[i][0] + 1, table[i][1]),
        "written": lambda i: weights.clone().mul_(i),
    }
    if name == "table":
        return table
    if name == "subset":
        return data.Subset(table, [5, 1, 2, 0, 7])
    if name == "concatenated":
        return data.ConcatDataset([table, table])
    return Items(made[name])


NAMES = [
    "int", "float", "bool", "array", "numpy number", "large", "strided", "number tensor", "tuple",
    "from_numpy", "half", "empty", "leaf", "dict", "closure", "global", "attribute", "view",
    "no grad", "wrapped", "written", "table", "subset", "concatenated",
]  # fmt: skip
ARGUMENTS = [
    {"batch_size": 3, "num_workers": 2},
    {"batch_size": 2, "drop_last": True, "prefetch_factor": 1},
    {"batch_size": None},
    {"batch_size": 3, "collate_fn": lambda batch: batch, "pin_memory": False},
    {"batch_sampler": [[3, 1], [0], [2, 2, 4]], "num_workers": 2},
]


def outcome(run):
    try:
        return plain(run())
    except Exception as error:  # noqa: BLE001 - compared
        return type(error).__name__, str(error).partition("\n")[0]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda one: next(iter(one.items())))
@pytest.mark.parametrize("name", NAMES)
def test_batches(name, arguments):
    seen = []
    for library, data in BOTH:
        loader = data.DataLoader(items(library, data, name), **{"num_workers": 1} | arguments)
        seen.append(outcome(lambda loader=loader: list(loader)))
    assert seen[0] == seen[1]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("lengths", [(4, 4, 4), (0, 5, 1), (7, 1, 2)], ids=str)
def test_streams_are_split(workers, lengths):
    def batches(data):
        class Part(data.IterableDataset):
            def __iter__(self):
                at = data.get_worker_info().id
                return iter(range(100 * at, 100 * at + lengths[at]))

        loader = data.DataLoader(Part(), batch_size=2, num_workers=workers, prefetch_factor=1)
        return sorted(batch.tolist() for batch in loader)

    assert batches(ours) == batches(theirs)


def test_the_dataset_of_a_worker_is_its_own():
    class Counting(Items):
        count = 0

        def __getitem__(self, index):
            self.count += 1
            return self.count

    dataset = Counting(None)
    assert [x.item() for x in ours.DataLoader(dataset, num_workers=2)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert dataset.count == 0


def drawn(library):
    """A draw from every generator of a worker."""
    of_numpy = float(np.random.random())  # noqa: NPY002 - what users draw from
    return random.random(), of_numpy, library.rand(2).tolist()


def test_seeds():
    """Python's and numpy's generators have the states that PyTorch gives them for one base."""

    def in_worker(index):
        info = ours.get_worker_info()
        torch_draw = torch.rand(2).tolist()
        return info.id, info.num_workers, info.seed, len(info.dataset), drawn(gt), torch_draw

    loader = ours.DataLoader(Items(in_worker), num_workers=2, batch_size=None)
    first, second = list(loader)[:2]
    base = first[2]
    for worker, seen in enumerate((first, second)):
        random.seed(base + worker)
        np.random.seed(_generate_state(base, worker))  # noqa: NPY002 - as above
        gt.manual_seed(base + worker)
        torch.manual_seed(base + worker)
        expected = worker, 2, base + worker, 8, drawn(gt), torch.rand(2).tolist()
        assert plain(seen) == plain([*expected[:4], list(expected[4]), expected[5]])
    assert ours.get_worker_info() is None


def test_one_seed_is_one_run():
    def run():
        gt.manual_seed(5)
        loader = ours.DataLoader(
            Items(lambda i: (i, *drawn(gt)[:2])), num_workers=2, batch_size=None
        )
        return [list(loader) for _ in range(2)]

    first = run()
    assert run() == first
    assert first[0] != first[1]


def test_the_order_is_that_without_workers():
    def orders(workers):
        gt.manual_seed(3)
        loader = ours.DataLoader(range(20), 4, shuffle=True, num_workers=workers)
        return [[batch.tolist() for batch in loader] for _ in range(2)]

    assert orders(0) == orders(1) == orders(3)


def raising(error):
    def item(index):
        raise error

    return item


def stack_fails(batch):
    raise ValueError("collate")


FAILURES = {
    "value": lambda: (raising(ValueError("a\nb")), {}),
    "key": lambda: (raising(KeyError("k")), {}),
    "index": lambda: (raising(IndexError(4)), {}),
    "two texts": lambda: (raising(TwoTexts(1, 2)), {}),
    "unicode": lambda: (raising(UnicodeDecodeError("utf-8", b"x", 0, 1, "why")), {}),
    "os": lambda: (raising(FileNotFoundError(2, "none", "file")), {}),
    "stop": lambda: (raising(StopIteration(3)), {}),
    "collate": lambda: (lambda i: i, {"collate_fn": stack_fails}),
    "misfit": lambda: (lambda i: {i}, {}),
    "sizes": lambda: (np.ones, {"batch_size": 2}),
    "lists": lambda: (lambda i: [0] * i, {"batch_size": 2}),
    "init": lambda: (lambda i: i, {"worker_init_fn": raising(OSError("init"))}),
}


@pytest.mark.parametrize("name", FAILURES)
def test_errors_are_raised_again(name):
    item, arguments = FAILURES[name]()
    seen = []
    for _, data in BOTH:
        batches = iter(data.DataLoader(Items(item), num_workers=1, **arguments))
        try:
            seen.append(plain(list(batches)))
        except Exception as error:  # noqa: BLE001 - compared
            kind = next(one for one in type(error).__mro__ if one.__module__ != "gt.errors")
            lines = str(error).splitlines()
            # Lines between name the files of each.
            seen.append((kind, lines[:2], lines[-1].partition(": ")[2]))
    assert seen[0] == seen[1]


def test_the_loader_goes_on_after_an_error():
    def item(index):
        return 1 // (index - 1)

    seen = []
    for _, data in BOTH:
        batches = iter(data.DataLoader(Items(item), num_workers=2))
        texts = []
        while True:
            try:
                texts.append(next(batches).item())
            except ZeroDivisionError as error:  # noqa: PERF203 - each is looked at
                texts.append(str(error).partition(".")[0])
            except StopIteration:
                break
        seen.append(texts)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (lambda i: lambda: i, "Can't pickle local object"),
        (lambda i: gt.ones(2, requires_grad=True) * 2, "Cowardly refusing to serialize non-leaf"),
    ],
)
def test_what_cannot_be_sent_is_an_error(item, text):
    """PyTorch prints it in the worker and waits until its timeout."""
    with pytest.raises((AttributeError, RuntimeError, TypeError)) as raised:
        list(ours.DataLoader(Items(item), num_workers=1, batch_size=None))
    assert str(raised.value).startswith(
        f"Caught {raised.type.__name__} in DataLoader worker process 0"
    )
    assert text in str(raised.value)


@pytest.mark.parametrize("item", [exits, is_killed, breaks])
def test_a_worker_that_dies(item):
    seen = []
    for _, data in BOTH:
        with pytest.raises(RuntimeError) as raised:
            list(data.DataLoader(Items(item), num_workers=2))
        error = raised.value
        seen.append([re.sub(r"\d+", "n", str(one)) for one in (error, error.__cause__ or error)])
    assert seen[0] == seen[1]
    before = set(multiprocessing.active_children())  # of PyTorch's
    loader = ours.DataLoader(Items(item), num_workers=2, persistent_workers=True)
    for _ in range(2):  # its workers are started again
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(loader)
    assert set(multiprocessing.active_children()) <= before


def test_a_worker_that_takes_too_long():
    hold, go_on = os.pipe()
    batches = iter(ours.DataLoader(Items(lambda i: os.read(hold, 1)), num_workers=1, timeout=0.01))
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0\.01 seconds$"):
        next(batches)
    os.write(go_on, b"x" * 99)
    os.close(hold)
    os.close(go_on)


def test_persistent_workers_are_kept():
    loader = ours.DataLoader(
        Items(lambda i: (i, os.getpid())), num_workers=2, persistent_workers=True, batch_size=None
    )
    rounds = [list(loader) for _ in range(2)]
    assert rounds[0] == rounds[1]
    for item in loader:
        assert item == rounds[0][0]
        break  # what was asked for meanwhile is not the next round's
    assert list(loader) == rounds[0]
    again = ours.DataLoader(Items(lambda i: os.getpid()), num_workers=2, batch_size=None)
    assert not set(again) & set(again)


@pytest.mark.parametrize("workers", [1, 3])
def test_any_order_has_all(workers):
    loader = ours.DataLoader(range(20), 3, num_workers=workers, in_order=False)
    assert sorted(x for batch in loader for x in batch.tolist()) == list(range(20))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method):
    batches = ours.DataLoader(Scaled(), 3, num_workers=1, multiprocessing_context=method)
    alone = [plain(batch) for batch in ours.DataLoader(Scaled(), 3)]
    assert [plain(batch) for batch in batches] == alone
    own = multiprocessing.get_context(method)
    assert (
        ours.DataLoader([1], num_workers=1, multiprocessing_context=own).multiprocessing_context
        is own
    )


@pytest.mark.parametrize("context", ["none", 3])
def test_wrong_contexts(context):
    seen = []
    for _, data in BOTH:
        for workers in (0, 1):
            with pytest.raises((ValueError, TypeError)) as raised:
                data.DataLoader([1], num_workers=workers, multiprocessing_context=context)
            seen.append((raised.type, str(raised.value)))
    assert seen[:2] == seen[2:]


def test_a_tensor_that_is_not_found_says_so():
    def item(index):
        return globals()["WEIG" + "HTS"][gt][index]

    with pytest.raises(
        RuntimeError, match=r"keep it in the dataset, .* or load with num_workers=0"
    ):
        list(ours.DataLoader(Items(item), num_workers=1))


def test_a_table_needs_no_session_in_a_worker():
    table = ours.TensorDataset(gt.arange(24.0).reshape(8, 3), gt.arange(8))
    began = [
        ours.DataLoader(table, 4, num_workers=1, worker_init_fn=lambda at: refuse()),
        ours.DataLoader(
            Items(lambda i: np.ones(2)), 4, num_workers=1, worker_init_fn=lambda at: refuse()
        ),
    ]

    def refuse():
        gt.config.session_options = None  # opening one would fail

    for loader in began:
        assert len(list(loader)) == 2
    wrapped = ours.DataLoader(
        Items(lambda i: table[i]), num_workers=1, worker_init_fn=lambda at: refuse()
    )
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        list(wrapped)


@pytest.mark.filterwarnings("ignore:.*workers that are not there")
def test_layouts_are_the_parents():
    gt.register_config(
        "stage", gt.config.SignalConfig(shard=gt.config.ShardConfig(axis=0, workers=[0, 1]))
    )
    try:
        with gt.signal.context("stage"):
            loader = ours.DataLoader(Items(lambda i: gt.ones(4) * i), num_workers=1)
            assert [x.sum().item() for x in loader] == [4.0 * i for i in range(8)]
    finally:
        gt.register_config("stage", None)


def fails(loader):
    with pytest.raises(ZeroDivisionError):
        list(loader)


def first_of(loader):
    for _ in loader:
        break


def all_of(loader):
    assert len(list(loader)) == 8


def shared_memory():
    """Number of open files, and mappings of loaders and semaphores, in this process.

    The names in /dev/shm are everybody's: another test's loader may come and go meanwhile.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line for line in maps if "gt-batch" in line or "/dev/shm/" in line]
    return len(list(Path("/proc/self/fd").iterdir())), mapped


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("use", [all_of, first_of, fails, iter])
def test_nothing_is_left(use, persistent):
    kept = gt.arange(3.0) + 1
    list(ours.DataLoader([1], num_workers=1))  # what a process opens once
    gc.collect()
    before = shared_memory()
    divisor = 0 if use is fails else 1
    item = Items(lambda i: (np.ones(50_000) * i, gt.ones(9000), i // divisor))
    loader = ours.DataLoader(item, num_workers=2, persistent_workers=persistent)
    use(loader)
    del loader
    gc.collect()
    assert multiprocessing.active_children() == []
    assert shared_memory() == before
    assert kept.tolist() == [1.0, 2.0, 3.0]


def start(code):
    """A program, and the numbers that its first line says."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, [int(word) for word in process.stdout.readline().split()]


def assert_gone(processes):
    """None of them lives, or it ends without anybody's doing."""
    for number in processes:
        try:
            descriptor = os.pidfd_open(number)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([descriptor], [], [], 30)
        os.close(descriptor)
        assert ended, number


PROGRAM = """
    import os, time, gt
    from gt.utils.data import DataLoader
    class Items:
        def __len__(self):
            return 10**6
        def __getitem__(self, index):
            return gt.tensor(os.getpid()) + 0
    loader = DataLoader(Items(), num_workers=2, persistent_workers=True)
    batches = iter(loader)
    try:
        print(next(batches).item(), next(batches).item(), flush=True)
        {then}
    except KeyboardInterrupt:
        print("interrupted", gt.ones(2).tolist())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, None], ids=str)
def test_workers_end_with_the_program(sent):
    process, workers = start(PROGRAM.format(then="time.sleep(99)" if sent else "pass"))
    assert len(workers) == 2
    if sent:
        process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (-sent if sent else 0, "")
    assert_gone(workers)


def test_an_interrupt_reaches_the_program():
    process, workers = start(PROGRAM.format(then="while True: next(batches)"))
    ended, presses = None, 0
    while ended is None:
        os.killpg(process.pid, signal.SIGINT)
        presses += 1
        try:
            ended = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            # Python drops an interrupt that comes while it finalizes an object, and says so.
            assert presses < 4, "the program goes on"
    output, said = ended
    assert (output.splitlines(), process.returncode) == (["interrupted [1.0, 1.0]"], 0)
    assert said == "" or presses > 1, said
    assert_gone(workers)
