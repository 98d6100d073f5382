"""Two and more workers on CPUs are forked by one process, which has imported what they need."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import shared_memory
from cluster import first_line, until
from worker_processes import worker_processes

RUN_SECONDS = 50.0
HERE = Path(__file__).parent
HELPERS = """
import os, signal, sys
from pathlib import Path
from worker_processes import children, worker_processes
import gt
"""
GONE = "worker {} is gone (its process ended) and held this value"


def start(code: str, **settings: str) -> "subprocess.Popen[str]":
    """A program of that text with two workers, or as the variables say."""
    paths = [settings.pop("PYTHONPATH", ""), str(HERE), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))  # an empty one is the current folder
    given = {"GT_BACKEND": "numpy", "GT_WORKERS": "2", "GT_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-c", HELPERS + textwrap.dedent(code)],
        env=os.environ | given | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, **settings: str) -> tuple[list[str], str]:
    """The lines that a program prints which ends well, and what it says beside them."""
    with start(code, **settings) as program:
        try:
            printed, said = program.communicate(timeout=RUN_SECONDS)
        finally:
            program.kill()
    assert program.returncode == 0, said
    return printed.splitlines(), said


def alive(process: int) -> bool:
    """True for a running process; a zombie does not count."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


CUT = "x = gt.distribute(gt.arange(4.0), dim=0)\nprint(x.tolist(), flush=True)\n"


def test_one_process_forks_them() -> None:
    code = CUT + "print(len(children()), len(worker_processes()))"
    assert run(code, GT_WORKERS="3") == (["[0.0, 1.0, 2.0, 3.0]", "1 3"], "")


def test_one_worker_is_started_by_itself() -> None:
    code = "gt.ones(2).tolist()\nprint(children() == worker_processes())"
    assert run(code, GT_WORKERS="1") == (["True"], "")


def test_workers_of_gpus_start_by_themselves() -> None:
    """No library of a GPU's is loaded before a fork. There may be no GPU here: numpy computes."""
    code = CUT + "print(len(children()), children() == worker_processes())"
    assert run(code, CUDA_VISIBLE_DEVICES="0,1") == (["[0.0, 1.0, 2.0, 3.0]", "2 True"], "")


def test_what_a_worker_starts_is_no_worker() -> None:
    """A compiler is a copy of the worker, with its command line, until it is executed."""
    program = 'import os\nos.fork()\nos.write(1, b"%d\\n" % os.getpid())\ninput()'
    with subprocess.Popen(
        [sys.executable, "-c", program, "-m", "gt.worker", "--control-fd", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        processes = {int(worker.stdout.readline()) for _ in range(2)}
        assert processes.intersection(worker_processes()) == {worker.pid}
        worker.stdin.close()


@pytest.mark.parametrize("moment", ["at work", "before the first word"])
def test_a_killed_program_leaves_nothing(moment: str) -> None:
    before = shared_memory.names()
    work = "while True: x = x + 1" if moment == "at work" else "signal.pause()"
    begin = CUT if moment == "at work" else "gt.init(); print(flush=True)\n"
    code = f"{begin}print(*children(), *worker_processes(), flush=True)\n{work}"
    with start(code) as program:
        first_line(program)
        processes = [int(word) for word in program.stdout.readline().split()]
        program.kill()
        assert program.communicate(timeout=RUN_SECONDS)[1] == ""
    until(lambda: not any(map(alive, processes)))
    assert not shared_memory.left_since(before)


def test_a_program_that_ends_waits_for_their_end() -> None:
    printed, said = run(CUT + "print(*children(), *worker_processes())")
    assert said == ""
    assert not any(alive(int(word)) for word in printed[1].split())


def test_a_killed_worker_is_replaced_and_its_values_are_made_again() -> None:
    code = (
        CUT
        + """
os.kill(worker_processes()[1], signal.SIGKILL)
print(x.tolist())
print(gt.arange(3.0).tolist(), gt.debug.stats()["workers"])
gt.disconnect()
print(gt.distribute(gt.arange(2.0), dim=0).tolist(), gt.debug.stats()["workers"])
"""
    )
    lines = ["[0.0, 1.0, 2.0, 3.0]", "[0.0, 1.0, 2.0] 2", "[0.0, 1.0] 2"]
    printed, said = run(code, GT_WORKERS="2")
    assert printed[1:] == lines
    assert said.startswith("gt: worker 1 is gone: its process was ended by signal 9, SIGKILL;")


def test_workers_outlive_who_forked_them() -> None:
    code = (
        CUT
        + """
workers = worker_processes()
os.kill(children()[0], signal.SIGKILL)
print((x + 1).tolist(), gt.debug.stats()["workers"])
print(*workers)
"""
    )
    printed, said = run(code)
    assert (printed[1], said) == ("[1.0, 2.0, 3.0, 4.0] 2", "")
    assert not any(alive(int(word)) for word in printed[2].split())


def test_nobody_is_left_who_could_fork_them() -> None:
    code = """
gt.init()
while not (started := children()): pass  # the kernel's list may leave out who has just come
server = started[0]
os.kill(server, signal.SIGSTOP)
assert children() == worker_processes()
x = gt.ones(2)
os.kill(server, signal.SIGKILL)
try: x.tolist()
except gt.WorkerError as error: print(str(error).splitlines()[0])
gt.disconnect()
print(gt.ones(2).tolist())
"""
    printed, said = run(code)
    assert printed == [GONE.format(0), "[1.0, 1.0]"]
    empty = [f"gt: worker {index} is gone: its process ended; " for index in range(2)]
    lines = said.splitlines()
    assert all(line.startswith(tuple(empty)) and line.endswith("place is empty") for line in lines)


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"


def test_who_has_threads_forks_nobody(tmp_path: Path) -> None:
    """A module that the user's installation imports in each Python starts one."""
    is_worker = "import sys\nif '--fork-fd' in sys.orig_argv:\n    "
    text = is_worker + THREAD.replace("\n", "\n    ")
    (tmp_path / "sitecustomize.py").write_text(text, encoding="utf-8")
    code = (
        CUT
        + """
os.kill(worker_processes()[1], signal.SIGKILL)
print(x.tolist())
print(gt.arange(3.0).tolist())
print(*children(), *worker_processes())
"""
    )
    printed, said = run(code, PYTHONPATH=str(tmp_path))
    assert printed[:3] == [*["[0.0, 1.0, 2.0, 3.0]"] * 2, "[0.0, 1.0, 2.0]"]
    first, last = said.splitlines()
    assert first == (
        "gt.worker: a thread runs where workers would be forked, so each imports by itself"
    )
    assert last.endswith("; another took its place")
    assert not any(alive(int(word)) for word in printed[3].split())


IN_WORKER = """
import sys
if "--fork-fd" in sys.orig_argv:
    def fails(*of): raise ValueError("not\\ntoday")
"""
NO_CHAIN = """
    import gt.worker.native.chain as chain
    chain.run = fails
"""
NO_BINDER = """
    import gt.worker.aten.start as start
    offer = start.offer_aten
    start.offer_aten = lambda addresses, bind: offer(addresses, fails)
"""


@pytest.mark.parametrize(
    ("backend", "broken"), [("native", NO_CHAIN), ("pytorch", NO_BINDER)], ids=["chain", "binder"]
)
def test_a_row_whose_fast_path_fails_is_named_once(
    backend: str, broken: str, tmp_path: Path
) -> None:
    """Its Python kernel runs instead, which only a clock would show."""
    if backend == "pytorch":
        pytest.importorskip("torch")
    (tmp_path / "sitecustomize.py").write_text(IN_WORKER + broken, encoding="utf-8")
    code = """
x = gt.arange(1e6)
for _ in range(20):
    x = x + 1
    x = x + 1
print(x[:4].tolist())
"""
    variables = {"PYTHONPATH": str(tmp_path), "GT_BACKEND": backend, "GT_ATEN": "on"}
    printed, said = run(code, **variables)
    assert printed == ["[40.0, 41.0, 42.0, 43.0]"]
    line = (
        "gt.worker: a fast path of `add` failed, and its Python kernel runs in place: "
        "ValueError: not today\n"
    )
    assert said.count(line) == 1, said


def test_a_program_without_standard_error() -> None:
    """Its number is free then for the first socket that comes."""
    code = """
import subprocess
code = "import gt; x = gt.distribute(gt.arange(4.0), dim=0); print(x.tolist()); import numpy"
print(subprocess.run(["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code]).returncode)
"""
    assert run(code) == (["[0.0, 1.0, 2.0, 3.0]", "0"], "")


def test_what_a_worker_says_arrives() -> None:
    """A warning of PyTorch's: each worker says it once."""
    pytest.importorskip("torch")
    code = """
x = gt.distribute(gt.ones(2, 1), dim=0)
print(x.var(1).tolist(), x.var(1).tolist())
"""
    printed, said = run(code, GT_BACKEND="pytorch", GT_ATEN="off")
    assert printed == ["[nan, nan] [nan, nan]"]
    assert [line.split(": ")[:2] for line in said.splitlines()] == [
        ["gt.worker", "in `var`"],
        ["gt.worker", "in `var`"],
    ]


PRODUCTS = """
import hashlib
gt.manual_seed(3)
x, w = gt.randn(4 * 512, 512), gt.randn(512, 512)
is_alone = os.environ["GT_WORKERS"] == "1"
parts = x.split(512) if is_alone else [gt.distribute(x, dim=0)]
print([part.shape[0] for part in parts])
gt.synchronize()
def threads(): return [len(os.listdir(f"/proc/{worker}/task")) for worker in worker_processes()]
small = threads()
products = [(part @ w).numpy().tobytes() for part in parts]
print([large - few for large, few in zip(threads(), small, strict=True)])
print(hashlib.sha256(b"".join(products)).hexdigest())
"""


def test_forked_workers_have_their_threads_and_the_same_bits() -> None:
    """The pool of threads is made after the fork, in each."""
    pytest.importorskip("torch")
    settings = {"GT_BACKEND": "pytorch", "GT_THREADS": "2", "GT_ATEN": "off"}
    alone, _ = run(PRODUCTS, GT_WORKERS="1", **settings)
    forked, _ = run(PRODUCTS, GT_WORKERS="4", **settings)
    assert alone == ["[512, 512, 512, 512]", "[1]", alone[2]]
    assert forked == ["[2048]", "[1, 1, 1, 1]", alone[2]]


PRIVATE = """
x = gt.distribute(gt.ones(64, 64), dim=0)
(x @ x).sum().item()
def private(process):
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
print(max(private(process) for process in worker_processes()))
"""


def test_forked_workers_share_what_they_import() -> None:
    pytest.importorskip("torch")
    alone, forked = (
        int(run(PRIVATE, GT_BACKEND="pytorch", GT_ATEN="off", GT_WORKERS=count)[0][0])
        for count in ("1", "2")
    )
    assert forked <= alone / 2
