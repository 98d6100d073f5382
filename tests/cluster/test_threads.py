"""Several Python threads emit and read at once: right values, no hang, a grad mode each."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import gt

THREADS = 8
ROUNDS = 30
OPS = 100  # of each round: 3,000 operations and 30 reads a thread


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs `work(index)` on that many threads at once; the first error of any is raised here."""
    errors: list[BaseException] = []
    ready = threading.Barrier(threads)

    def one(index: int) -> None:
        try:
            ready.wait()
            work(index)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    running = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def chains(index: int) -> None:
    """Chains of additions that start with the thread's own number, each read at its end."""
    for _ in range(ROUNDS):
        x = gt.full((4,), float(index))
        for _ in range(OPS):
            x = x + 1
        assert x.tolist() == [index + float(OPS)] * 4


def gradients(index: int) -> None:
    """A tape of the thread's own, backward and both reads."""
    for _ in range(ROUNDS):
        x = gt.full((3,), float(index), requires_grad=True)
        y = x
        for _ in range(OPS // 5):
            y = y + x
        (y * y).sum().backward()
        times = OPS // 5 + 1.0
        assert x.grad.tolist() == [2 * index * times * times] * 3


@pytest.mark.timeout(60)
def test_values_are_right_when_eight_threads_emit_and_read() -> None:
    """Every answer reaches the thread that asked."""
    together(chains)


@pytest.mark.timeout(60)
def test_gradients_are_right_when_eight_threads_train() -> None:
    """Tapes of several threads do not mix."""
    together(gradients)


@pytest.mark.timeout(60)
def test_threads_that_only_read_take_turns() -> None:
    """One value, many readers, none of whom waits for another's answer."""
    x = gt.arange(1000.0)
    expected = x.tolist()

    def read(_: int) -> None:
        for at in range(ROUNDS * 10):
            assert x[at].item() == at
        assert x.tolist() == expected

    together(read)


@pytest.mark.timeout(60)
def test_what_threads_drop_is_freed() -> None:
    """Values die on threads other than the one that made them."""
    before = gt.debug.stats()["values"]
    tensors = [[gt.ones(2) + i for i in range(OPS)] for _ in range(THREADS)]
    together(lambda index: tensors[index].clear())
    gt.synchronize()
    assert gt.debug.stats()["values"] == before


@pytest.mark.timeout(60)
def test_grad_mode_is_each_threads_own() -> None:
    """Half of the threads record, all at the same time; a new thread records as PyTorch's does."""
    inside = threading.Barrier(THREADS)

    def work(index: int) -> None:
        assert gt.is_grad_enabled()
        x = gt.ones(2, requires_grad=True)
        with gt.set_grad_enabled(index % 2 == 0):
            inside.wait()
            assert gt.is_grad_enabled() == (index % 2 == 0)
            assert (x * 2).requires_grad == (index % 2 == 0)
            inside.wait()
        assert (x * 2).requires_grad

    with gt.no_grad():
        together(work)
        assert not gt.is_grad_enabled()


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # another thread may read first
def test_an_error_is_raised_on_the_thread_that_reads() -> None:
    """The others' values are right in the meantime."""

    def work(index: int) -> None:
        for _ in range(ROUNDS):
            if index % 2:
                chains_of_one = gt.full((2,), float(index)) + 1
                assert chains_of_one.tolist() == [index + 1.0] * 2
                continue
            with pytest.raises(gt.errors.IndexOutOfRange):
                gt.ones(3).index_select(0, gt.tensor([7])).tolist()

    together(work)


@contextmanager
def collecting_often() -> Iterator[None]:
    """Python's collector runs at each object that it could track."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.parametrize("tape", [False, True])
@pytest.mark.parametrize("scope", [False, True])
def test_a_destructor_may_emit_in_the_middle_of_an_emission(*, tape: bool, scope: bool) -> None:
    """To find the user's line may make a frame object, and with it run the collector."""
    x = gt.ones(2, requires_grad=tape)
    sums: list[gt.Tensor] = []

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            sums.append(x + 1)
            gt.tensor([1.0, 2.0])

    def within() -> gt.Tensor:
        """In a frame of its own, at each call."""
        y = x + x
        y += 1
        return y.sum()

    gc.collect()
    before = gt.debug.stats()["values"]
    with gt.signal.context("often") if scope else gt.enable_grad(), collecting_often():
        totals = [(Last(), within())[1] for _ in range(200)]
    gc.collect()
    assert len(sums) >= 200
    assert all(total.item() == 6 for total in totals)
    assert all(each.tolist() == [2, 2] for each in sums)
    del totals[:], sums[:]
    gt.synchronize()
    assert gt.debug.stats()["values"] == before


def test_a_free_threaded_interpreter_is_refused() -> None:
    """By its name: the GIL is the client's lock."""
    program = "import sys; sys.abiflags = 't'; import gt"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: gt needs Python's global interpreter lock" in done.stderr
