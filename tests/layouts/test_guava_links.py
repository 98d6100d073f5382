"""Guava over links that are slow, lose packets, break and come back: two hosts are two network
namespaces, and the cable between them (cable.py) does what `tc netem` would."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cable import ADDRESSES, Cable
from cluster import TESTS

# Trains a new model for each line of its input: the flags of the run as JSON.
ORCHESTRATOR = """
import json, sys
import guava_models, gt
from gt.guava import DistributedConfig, Orchestrator
batches = guava_models.points(24, 64)
config = DistributedConfig(num_workers=2, master_ip=sys.argv[1], master_port=0, save_interval=0,
                           checkpoint_dir=sys.argv[2], log_step_every=4, **json.loads(sys.argv[3]))
with Orchestrator(config, mode="orchestrator") as orchestrator:
    for line in sys.stdin:
        for name, value in json.loads(line).items():
            setattr(config, name, value)
        gt.manual_seed(0)
        orchestrator.register_model(guava_models.classifier(gt))
        print("losses", orchestrator.start_training(batches, 1).losses, flush=True)
"""
DATA = {"model_parallel": False, "pipeline_parallel": False}
PIPELINE = {"model_parallel": True, "pipeline_parallel": True, "micro_batches": 2}


class Run:
    """An orchestrator with a worker at one end of a cable, and a worker at the other.

    Args:
        cable: laid.
        folder: for files.
        settings: of links, for all three processes.
    """

    def __init__(self, cable: Cable, folder: str, **settings: str) -> None:
        self.cable = cable
        environment = os.environ | settings
        environment["PYTHONPATH"] = os.pathsep.join([TESTS, environment.get("PYTHONPATH", "")])
        environment |= {"GT_BACKEND": "native", "GT_TOKEN": "open-sesame-0123456789"}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {
            "env": environment
        }
        words = ["-c", ORCHESTRATOR, ADDRESSES[0], folder, "{}"]
        self.orchestrator = cable.run(0, sys.executable, "-u", *words, **streams)
        line = self.line_with("listening on")
        environment["MASTER_PORT"] = re.search(r":(\d+);", line)[1]
        environment["MASTER_IP"] = ADDRESSES[0]
        words = [sys.executable, "-m", "gt.guava.workers.network_worker"]
        streams = {"env": environment, "stderr": subprocess.PIPE}
        self.workers = [cable.run(end, *words, **streams) for end in (0, 1)]

    def line_with(self, text: str) -> str:
        """The next line of the orchestrator that has this."""
        for line in self.orchestrator.stdout:
            if text in line:
                return line
        raise AssertionError(f"the orchestrator ended before {text!r}")

    def begin(self, flags: dict[str, object]) -> None:
        """Train a new model."""
        self.orchestrator.stdin.write(json.dumps(flags) + "\n")
        self.orchestrator.stdin.flush()

    def losses(self) -> list[float]:
        """Losses of the run that was begun."""
        return json.loads(self.line_with("losses ").removeprefix("losses "))

    def end(self) -> list[str]:
        """Let all three end, well; what the workers have said."""
        self.orchestrator.stdin.close()
        assert self.orchestrator.wait(30) == 0
        said = [worker.communicate(timeout=30)[1] for worker in self.workers]
        assert [worker.returncode for worker in self.workers] == [0, 0], said
        return said


@contextlib.contextmanager
def running(folder: str, **settings: str) -> Iterator[Run]:
    """Both hosts at work."""
    with Cable() as cable:
        run = Run(cable, folder, **settings)
        try:
            yield run
        finally:
            for process in (run.orchestrator, *run.workers):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
                process.wait()
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("flags", [DATA, PIPELINE], ids=["data", "pipeline"])
def test_losses_are_the_same_over_a_slow_link_that_loses_packets_and_is_cut(flags, tmp_path):
    with running(str(tmp_path)) as run:
        run.begin(flags)
        expected = run.losses()
        assert len(set(expected)) == len(expected) >= 12
        run.cable.delay, run.cable.loss = 0.025, 0.01
        run.begin(flags)
        assert run.losses() == expected
        assert run.cable.lost > 0
        run.cable.delay = run.cable.loss = 0.0
        run.begin(flags)
        run.line_with("step 4 ")
        run.cable.cut(5.0)
        assert run.losses() == expected
        run.end()


@pytest.mark.slow
def test_a_silent_link_is_probed_and_made_anew_as_the_settings_say(tmp_path):
    settings = {"RESEND_PROBE_SEC": "0.5", "RESENDS_MAX": "1", "ACK_TIMEOUT_SEC": "30"}
    with running(str(tmp_path), **settings) as run:
        run.begin(PIPELINE)
        expected = run.losses()
        run.begin(PIPELINE)
        run.line_with("step 4 ")
        run.cable.cut(5.0)
        assert run.losses() == expected
        near, far = run.end()
    assert "dispatcher broke" not in near
    assert re.search(r"link to the dispatcher broke \(.*\) and is resumed", far), far


@pytest.mark.slow
def test_a_link_that_stays_cut_ends_the_run_when_the_time_is_over(tmp_path):
    settings = {"RESEND_PROBE_SEC": "0.5", "RESENDS_MAX": "1", "ACK_TIMEOUT_SEC": "2"}
    settings["ACT_TIMEOUT_SEC"] = "2"
    with running(str(tmp_path), **settings) as run:
        run.begin(DATA)
        run.line_with("step 4 ")
        run.cable.cut(600.0)
        errors = run.orchestrator.communicate(timeout=40)[1]
    assert re.search(r"worker \d is gone", errors), errors


def _limits(name: str) -> int:
    """Largest size that the kernel gives a buffer by itself."""
    return int(Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[2])


def _granted() -> tuple[int, int]:
    """Buffers to send and to receive of a socket that asks for 16 MiB."""
    with socket.socket() as trial:
        options = (socket.SO_SNDBUF, socket.SO_RCVBUF)
        for option in options:
            trial.setsockopt(socket.SOL_SOCKET, option, 16 << 20)
        return tuple(trial.getsockopt(socket.SOL_SOCKET, option) for option in options)


def test_links_between_hosts_have_large_buffers_and_probes(tmp_path):
    if shutil.which("ss") is None:
        pytest.skip("there is no `ss` here to see the options of sockets with")
    send, receive = _granted()
    with running(str(tmp_path)) as run:
        run.begin(DATA)
        run.losses()
        words = ["ss", "-tnmoH", "state", "established"]
        shown = [
            run.cable.run(end, *words, stdout=subprocess.PIPE).communicate()[0] for end in (0, 1)
        ]
        said = run.end()
    links = [re.split(r"\n(?=\S)", text.strip()) for text in shown]
    between = [one for one in links[0] + links[1] if ADDRESSES[1] in one]
    assert (
        len(between) == 4
    )  # the second worker's to the dispatcher and to the first worker, at both ends
    for link in between:
        assert "timer:(keepalive" in link or "timer:(on" in link
        granted = {name: int(size) for name, size in re.findall(r"\b(rb|tb)(\d+)", link)}
        if send >= _limits("tcp_wmem"):
            assert granted["tb"] == send
        if receive >= _limits("tcp_rmem"):
            assert granted["rb"] == receive
    is_clipped = min(send, receive) < 32 << 20
    for worker in said:
        assert worker.count("net.core.rmem_max and net.core.wmem_max") == is_clipped, worker
