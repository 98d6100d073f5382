"""Memory of large values in a worker with the ATen helper: what is freed is what is used next."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

MEGABYTE = 1 << 20
KEPT_BYTES = 256 * MEGABYTE

PRELUDE = f"""
import random, resource, threading
import torch
from gt.worker.aten import start

MEGABYTE, KEPT_BYTES = {MEGABYTE}, {KEPT_BYTES}
torch.set_num_threads(1)
helper = start.ready()

def install():
    helper.gt_memory_install(KEPT_BYTES)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def filled(megabytes, number):
    return torch.full((int(megabytes * MEGABYTE) // 8,), number, dtype=torch.int64)
"""


def run(program: str) -> str:
    """Output of a process that has the helper and may use its allocator."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


TEMPORARIES = """
x = filled(48, 1)

def step():
    y = x + x
    z = y * x
    del y
    return (z - x)[0].item()

def faults_of_steps():
    step()
    before = faults()
    for _ in range(10):
        assert step() == 1
    return faults() - before

alone = faults_of_steps()
install()
print(alone, faults_of_steps())
"""


def test_temporaries_take_no_new_pages() -> None:
    alone, ours = map(int, run(TEMPORARIES).split())
    assert alone > 10_000  # torch's own gives each block back
    assert ours < 100


BETWEEN = """
install()
small = []
before = resident()
for size in range(200):
    large = filled(20 + size % 40, size)
    small.append(large[:1000] + 1)
    del large
assert [int(one[0]) for one in small] == [size + 1 for size in range(200)]
print((resident() - before) // MEGABYTE)
"""


def test_small_results_between_large_ones_keep_nothing_of_these() -> None:
    assert int(run(BETWEEN)) < KEPT_BYTES // MEGABYTE + 64


RANDOM_SIZES = """
install()

def play(seed):
    draw, live = random.Random(seed), []
    for step in range(600):
        # Small ones of the C library's, those of small pages, and those of huge ones.
        live.append((step, filled(draw.choice([0.1, 1, 1.7, 2, 3.9, 4, 5.5, 9, 12, 30]), step)))
        if len(live) > 6:
            number, value = live.pop(draw.randrange(len(live)))
            assert bool((value == number).all()), number
            assert value.data_ptr() % 64 == 0
        assert helper.gt_memory_kept() <= KEPT_BYTES

failed = []

def guarded(seed):
    try:
        play(seed)
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
kept, before = helper.gt_memory_kept(), resident()
helper.gt_memory_release()
print(kept, helper.gt_memory_kept(), before - resident())
"""


def test_nobody_writes_into_what_lives_and_what_is_kept_goes_back() -> None:
    kept, left, given_back = map(int, run(RANDOM_SIZES).split())
    assert 64 * MEGABYTE < kept <= KEPT_BYTES
    assert left == 0
    assert given_back > kept // 2


NO_MORE = """
def text(bytes_wanted):
    try:
        torch.empty(bytes_wanted, dtype=torch.uint8)
    except RuntimeError as error:
        return str(error)

alone = text(1 << 50)
install()
assert alone is not None and text(1 << 50) == alone, (alone, text(1 << 50))
kept = [filled(30, number) for number in range(6)]
kept.clear()
assert helper.gt_memory_kept() > 100 * MEGABYTE
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 64 * MEGABYTE, -1))
# There is room for it only where what is kept goes.
large = filled(220, 7)
assert bool((large == 7).all())
assert text(300 * MEGABYTE) is not None
del large
assert bool((filled(200, 8) == 8).all())
print("right")
"""


def test_where_there_is_no_more_the_kept_goes_first_and_the_error_is_torchs() -> None:
    assert run(NO_MORE) == "right"
