"""A worker whose process dies is replaced, and the program goes on.

Programs run in processes of their own. What only the dead worker held is lost with a clear error;
what others hold stays.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import Cluster, first_line, result, until
from supervised import supervised

import gt
from gt import Layout, Partial
from gt import distributed as dist

RUN_SECONDS = 50.0
HERE = Path(__file__).parent
HELPERS = """
import os, signal, sys, threading, time
from pathlib import Path
from worker_processes import children, worker_processes
import gt

def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)

def kill(index=0, number=signal.SIGKILL):
    # A fork server starts a newcomer last, so its place among the processes is not its index.
    os.kill(worker_processes()[index], number)

def error(read):
    try:
        read()
    except gt.Error as error:
        return str(error)
    return "no error"
"""


def run(code: str, **settings: str) -> tuple[list[str], list[str]]:
    """The lines that a program prints which ends well, and those that it says beside them."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    own = {"GT_BACKEND": "numpy", "GT_WORKERS": "1", "GT_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", HELPERS + textwrap.dedent(code)],
        env=os.environ | own | settings,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


GONE = "worker {} is gone (its process was ended by signal {})"
KILLED = "9, SIGKILL"


# ---- a program with workers of its own ----


def test_the_program_goes_on_after_the_only_worker_was_killed() -> None:
    """Its values are made again, to the bit; new tensors work."""
    printed, said = run("""
        import numpy as np
        gt.manual_seed(3)
        x = gt.rand(50) * gt.tensor(np.arange(50.0, dtype=np.float32))
        y = x.exp().sum()
        before = x.numpy().tobytes(), y.item()
        kill()
        z = gt.arange(3.0) * 2
        print((x.numpy().tobytes(), y.item()) == before)
        print(z.tolist(), gt.debug.stats()["workers"])
    """)
    assert printed == ["True", "[0.0, 2.0, 4.0] 1"]
    (line,) = said
    assert line.startswith("gt: worker 0 is gone: its process was ended by signal 9, SIGKILL; ")
    assert re.search(r"; no value was lost, \d are made again; another took its place$", line)


def test_a_dead_worker_is_replaced_while_the_program_does_something_else() -> None:
    """It neither reads nor emits."""
    printed, said = run("""
        x = gt.ones(3)
        print(x.tolist())
        first = worker_processes()
        kill()
        until(lambda: worker_processes() not in ([], first))
        print(x.tolist(), gt.ones(2).tolist())
    """)
    assert printed == ["[1.0, 1.0, 1.0]", "[1.0, 1.0, 1.0] [1.0, 1.0]"]
    assert [line for line in said if "another took its place" in line] == said


def test_one_killed_in_the_middle_of_a_chain() -> None:
    """Products wait in its ring when it is killed, and a read; the result is the chain's."""
    printed, said = run("""
        import numpy as np
        rotation = np.eye(256, dtype=np.float32)[np.arange(256) - 1]
        x, step = gt.eye(256), gt.tensor(rotation)
        print(x.sum().item())
        for _ in range(1000):
            x = x @ step
        threading.Timer(0.2, kill).start()
        expected = np.linalg.matrix_power(rotation.astype(np.int64), 1000)
        print((x.numpy() == expected).all())
    """)
    assert printed == ["256.0", "True"]
    (line,) = said
    assert "while it ran matmul; no value was lost" in line


@pytest.mark.parametrize("backend", ["numpy", "native", "pytorch"])
def test_training_goes_on_to_the_bit(backend: str) -> None:
    """Buffers are reused by optimizer steps: values are made again from instructions."""
    printed, _ = run(
        """
        import gt.nn as nn, gt.nn.functional as F
        def trained(kills):
            gt.manual_seed(0)
            model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
            optimizer = gt.optim.AdamW(model.parameters(), lr=0.01)
            data, target = gt.randn(32, 8), gt.randint(0, 4, (32,))
            for step in range(30):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data), target)
                loss.backward()
                optimizer.step()
                if step in kills:
                    until(worker_processes)
                    kill()
                if step % 7 == 0:
                    loss.item()
            return b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(trained(()) == trained((3, 11, 12, 25)))
        """,
        GT_BACKEND=backend,
    )
    assert printed == ["True"]


def test_deaths_of_each_kind_and_many_in_a_row() -> None:
    printed, said = run("""
        x = gt.arange(3.0)
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM) * 2:
            x = x + 1
            print(x.tolist())
            (pid,) = worker_processes()
            kill(number=number)
            until(lambda: worker_processes() not in ([], [pid]))
        print(x.tolist(), len(worker_processes()))
    """)
    assert printed[-1] == "[8.0, 9.0, 10.0] 1"
    names = ["9, SIGKILL", "11, SIGSEGV", "6, SIGABRT", "15, SIGTERM"] * 2
    found = [re.search(r"was ended by signal (\d+, SIG[A-Z]+)", line) for line in said]
    assert [one[1] for one in found if one] == names


def test_what_cannot_be_made_again_is_a_clear_error() -> None:
    """The log keeps 32 MB of uploads."""
    printed, said = run("""
        import numpy as np
        x = gt.tensor(np.ones(12_000_000, dtype=np.float32))
        y = x[:3] + 1
        z = gt.ones(2)
        print(y.tolist())
        kill()
        for read in (x.sum().item, y.tolist):
            print(error(read))
        print(z.tolist(), gt.debug.stats()["workers"])
    """)
    assert printed[0] == "[2.0, 2.0, 2.0]"
    assert printed.count(GONE.format(0, KILLED) + " and held this value") == 2
    advice = "New tensors work; make this one again from what the program has, or from a file"
    assert sum(advice in line for line in printed) == 2
    assert printed[-1] == "[1.0, 1.0] 1"
    assert "values were lost, 1 is made again" in said[-1]


def test_values_from_before_a_cancel_are_lost() -> None:
    """Nobody but the dead worker knew which of the cancelled instructions had run."""
    printed, said = run("""
        import warnings
        warnings.simplefilter("ignore")
        weight = gt.ones(200, 200)
        print(weight.sum().item())
        for _ in range(2000):
            weight = weight @ weight
        gt.cancel()
        z = gt.arange(4.0)
        y = z + 1
        print(y.tolist())
        kill()
        print(error(weight.tolist))
        print(y.tolist(), (z * 2).tolist())
    """)
    assert printed[0] == "40000.0"
    assert printed[1] == "[1.0, 2.0, 3.0, 4.0]"
    assert GONE.format(0, KILLED) + " and held this value" in printed
    assert printed[-1] == "[1.0, 2.0, 3.0, 4.0] [0.0, 2.0, 4.0, 6.0]"
    assert "another took its place" in said[-1]


KILLER = """
import os, signal, sys
if "gt.worker" in sys.orig_argv:
    import numpy
    numpy.cosh = lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_an_instruction_that_kills_its_worker_twice_is_not_run_a_third_time(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(KILLER, encoding="utf-8")
    printed, said = run(
        """
        x = gt.arange(3.0)
        y = x + 1
        print(y.tolist())
        bad = y.cosh()
        worse = bad * 2
        print(error(worse.tolist))
        print(error(bad.tolist).splitlines()[0])
        print(y.tolist(), (x * 3).tolist(), gt.debug.stats()["workers"])
        """,
        PYTHONPATH=os.pathsep.join([str(tmp_path), str(HERE), os.environ.get("PYTHONPATH", "")]),
    )
    text = (
        "the instruction ended its worker twice, and is not run a third time: its process was"
        " ended by signal 11, SIGSEGV, while it ran cosh"
    )
    assert printed[0] == "[1.0, 2.0, 3.0]"
    assert printed[1:4:2] == [text, text], printed
    assert re.fullmatch(r"  in `cosh`, called at <string>:\d+", printed[2])
    assert printed[4] == "[1.0, 2.0, 3.0] [0.0, 3.0, 6.0] 1"
    deaths = [line for line in said if "while it ran cosh" in line]
    assert len(deaths) == 2, said


def test_one_of_two_forked_workers() -> None:
    """Values that it made by itself come back, and so do those that another one had sent to it."""
    printed, said = run(
        """
        whole = gt.distribute(gt.arange(4.0))
        sent = gt.distribute(gt.arange(4.0), 0)
        made = gt.distribute(gt.arange(2.0**19), 0) + 1  # each worker makes its part
        total = made.sum().item()
        print(whole.tolist(), sent.tolist())
        kill(1)
        print(sent.tolist(), (sent + 1).tolist())
        print(whole.tolist(), made.sum().item() == total, gt.debug.stats()["workers"])
        again = gt.distribute(gt.arange(6.0), 0)
        print(again.sum().item(), (again * 2).tolist())
        """,
        GT_WORKERS="2",
    )
    assert printed == [
        "[0.0, 1.0, 2.0, 3.0] [0.0, 1.0, 2.0, 3.0]",
        "[0.0, 1.0, 2.0, 3.0] [1.0, 2.0, 3.0, 4.0]",
        "[0.0, 1.0, 2.0, 3.0] True 2",
        "15.0 [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]",
    ]
    assert [line for line in said if "no value was lost" in line] == said


@pytest.mark.parametrize("victim", [0, 1])
def test_an_all_reduce_that_loses_a_member_is_made_again(victim: int) -> None:
    """The member is stopped, so the collective is in flight when it is killed; a read waits."""
    printed, said = run(
        """
        from gt import Layout, Partial
        from gt import distributed as dist
        def reduced():
            layout = Layout(gt.DeviceMesh(2), (64, 8), placements=[Partial()])
            return dist.all_reduce(gt.distribute(gt.ones(64, 8), layout))
        print(reduced().sum().item())
        victim = worker_processes()[VICTIM]
        os.kill(victim, signal.SIGSTOP)
        x = reduced()
        y = x * 3
        threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
        print(y.sum().item(), x.sum().item())
        print(reduced().sum().item())
        """.replace("VICTIM", str(victim)),
        GT_WORKERS="2",
    )
    assert printed == ["512.0", "1536.0 512.0", "512.0"]
    assert [line for line in said if "no value was lost" in line] == said


def test_both_of_two_workers_at_once() -> None:
    printed, said = run(
        """
        x = gt.distribute(gt.arange(2.0**12), 0)
        for _ in range(20):
            x = x + x.sum() / 2**24
        total = x.sum().item()
        for process in worker_processes():
            os.kill(process, signal.SIGKILL)
        print(x.sum().item() == total, gt.debug.stats()["workers"])
        """,
        GT_WORKERS="2",
    )
    assert printed == ["True 2"]
    assert [line for line in said if "no value was lost" in line] == said


@pytest.mark.parametrize("victim", [0, 1])
def test_what_two_workers_cannot_make_again_is_a_clear_error(victim: int) -> None:
    """The log keeps 32 MB of uploads, so neither can the sums be made that need one."""
    printed, said = run(
        """
        import numpy as np
        big = gt.distribute(gt.tensor(np.ones(12_000_000, dtype=np.float32)), 0)
        small = gt.distribute(gt.arange(8.0), 0)
        total, product = big.sum(), small * 2
        print(total.item(), product.tolist())
        kill(VICTIM)
        print(error((big + 1).sum().item).splitlines()[0])
        print(error(lambda: (big * small.sum()).tolist()).splitlines()[0])
        print(product.tolist(), small.sum().item(), gt.debug.stats()["workers"])
        """.replace("VICTIM", str(victim)),
        GT_WORKERS="2",
    )
    gone = GONE.format(victim, KILLED) + " and held this value"
    assert printed[:3] == [f"12000000.0 {[2.0 * k for k in range(8)]}", gone, gone]
    assert printed[3] == f"{[2.0 * k for k in range(8)]} 28.0 2"
    assert re.search(r"value[s]? (was|were) lost, \d are made again", said[0]), said


def test_a_cancel_ends_a_recovery_that_waits_for_others() -> None:
    """The other one is stopped, and so does not say what it has lost."""
    printed, _ = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        x = gt.distribute(gt.arange(8.0), 0)
        print(x.sum().item())
        stopped, killed = worker_processes()
        os.kill(stopped, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(worker_processes()) == 2 and killed not in worker_processes())
        gt.cancel()
        os.kill(stopped, signal.SIGCONT)
        print(error(x.tolist).splitlines()[0])
        print(gt.distribute(gt.arange(6.0), 0).sum().item())
        """,
        GT_WORKERS="2",
    )
    assert printed == ["28.0", GONE.format(1, KILLED) + " and held this value", "15.0"]


def killed_training(layout: str, *words: str, backend: str = "native") -> dict[str, Any]:
    """Kills, and where the results differ, of a model that is trained under a layout."""
    path = os.pathsep.join(
        [str(HERE), str(HERE.parent / "layouts"), os.environ.get("PYTHONPATH", "")]
    )
    own = {"GT_BACKEND": backend, "GT_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_training.py"), layout, *words],
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("layout", ["dp2", "dp3", "tp2", "tp3", "fsdp2", "pipeline2"])
def test_a_model_on_several_workers_trains_on_to_the_bit(layout: str) -> None:
    trained = killed_training(layout, "--steps", "5", "--kills", "4", "--rest", "0.3")
    assert trained["killed"] == 4
    assert trained["differ"] == {"losses": [], "weights": []}


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_twenty_kills_in_one_training(backend: str) -> None:
    # An instruction at which two workers were killed counts as what has killed them.
    words = ["--steps", "16", "--kills", "20", "--rest", "0.3"]
    trained = killed_training("dp2", *words, backend=backend)
    assert trained["killed"] == 20
    assert trained["differ"] == {"losses": [], "weights": []}


def test_one_that_dies_before_it_works_is_not_replaced() -> None:
    """A start that fails would fail again."""
    printed, said = run("""
        gt.init()
        until(worker_processes)
        kill()
        print(error(lambda: gt.ones(2).tolist()).splitlines()[0].partition(")")[0])
        text = error(lambda: gt.ones(2).tolist())
        print(text.splitlines()[0])
        print(text.splitlines()[-1])
        gt.disconnect()
        print(gt.ones(2).tolist())
    """)
    assert printed == [
        GONE.format(0, KILLED).partition(")")[0],
        "no worker is connected to the dispatcher",
        "  gt.disconnect() ends the session; the next operation starts a worker",
        "[1.0, 1.0]",
    ]
    assert [line for line in said if line.endswith("its place is empty")] == said


# ---- workers of a dispatcher ----


CLIENT = """
x = gt.ones(4)
print(x.sum().item(), flush=True)
input()
try:
    print(x.sum().item())
except gt.WorkerError as error:
    print(str(error).splitlines()[0])
print((gt.arange(4.0) + 1).tolist(), gt.debug.stats()["workers"])
"""
CONNECTED = r"worker 0 \("


def test_a_supervised_worker_is_replaced_for_two_clients() -> None:
    with supervised(1) as (cluster, parent):
        clients = [cluster.client(CLIENT), cluster.client(CLIENT)]
        assert [first_line(one) for one in clients] == ["4.0\n"] * 2
        (pid,) = parent.workers()
        os.kill(pid, signal.SIGKILL)
        told = parent.lines_to("takes the place of")
        assert re.fullmatch(
            rf"gt\.worker: started worker 0 \(process {pid}\) has ended by SIGKILL; its last words:",  # noqa: E501
            told[-3],
        ), told
        assert told[-1] == "gt.worker: another takes the place of started worker 0"
        until(lambda: len(re.findall(CONNECTED, cluster.log)) == 2)
        for client in clients:
            client.stdin.write("\n")
            client.stdin.flush()
        for client in clients:
            lines = result(client).splitlines()
            assert lines[0] == "4.0"
            assert lines[1] == "[1.0, 2.0, 3.0, 4.0] 1"


def test_a_client_is_told_who_went_and_that_another_came() -> None:
    with supervised(1) as (cluster, parent):
        client = cluster.client(CLIENT)
        assert first_line(client) == "4.0\n"
        os.kill(parent.workers()[0], signal.SIGKILL)
        until(lambda: len(re.findall(CONNECTED, cluster.log)) == 2)
        _, said = client.communicate("\n", timeout=RUN_SECONDS)
        reason = r"its connection closed; no value was lost, \d (is|are) made again"
        assert re.fullmatch(f"gt: worker 0 is gone: {reason}; another took its place\n", said), said


def reduces() -> bool:
    """True once a sum over both workers has come; False while one of them is missing."""
    layout = Layout(gt.DeviceMesh(2), (6, 8), placements=[Partial()])
    try:
        total = dist.all_reduce(gt.distribute(gt.ones(6, 8), layout)).numpy()
    except gt.WorkerError:
        return False
    np.testing.assert_array_equal(total, np.ones((6, 8)))
    return True


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of sums without the dead one
@pytest.mark.parametrize("way", ["rings", "TCP"])
def test_one_of_two_supervised_workers_dies_again_and_again(way: str) -> None:
    """The newcomer has the index of the dead one, and meets the other in collectives."""
    words = ["--tcp"] if way == "TCP" else []
    with supervised(2, *words) as (cluster, parent):
        gt.connect(cluster.address)
        try:
            for deaths in range(1, 3):
                until(reduces)
                os.kill(parent.workers()[-1], signal.SIGKILL)
                connected = 2 + deaths
                until(lambda count=connected: cluster.log.count("is connected by") == count)
            until(reduces)
        finally:
            gt.disconnect()


def test_the_supervisor_ends_with_its_dispatcher_and_starts_nobody_else() -> None:
    with supervised(2) as (cluster, parent):
        first = parent.workers()
        cluster.server.terminate()
        assert parent.process.wait(RUN_SECONDS) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in first)
        assert "takes the place" not in parent.process.stderr.read()


def test_a_worker_that_cannot_start_is_no_death() -> None:
    with Cluster(0) as cluster:
        done = subprocess.run(
            [*cluster.command, "--supervise"],
            env=os.environ | {"GT_KERNELS": "wrong"},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 2
        assert "GT_KERNELS=wrong" in done.stderr
        assert "takes the place" not in done.stderr
