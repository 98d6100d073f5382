"""Guava with workers whose memory really ends: the kernel refuses them more."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import numpy as np
import gt
from gt.guava import DistributedConfig, Orchestrator

ROWS, WIDTH = (int(word) for word in sys.argv[2:])
draw = np.random.default_rng(0)
batches = [(draw.standard_normal((ROWS, 8)).astype(np.float32), draw.integers(0, 5, ROWS))] * 3
config = DistributedConfig(num_workers=1, batch_size=ROWS, master_port=0, save_interval=0,
                           learning_rate=1e-2, checkpoint_dir=sys.argv[1])
with Orchestrator(config, mode="orchestrator") as orchestrator:
    gt.manual_seed(0)
    nn = gt.nn
    model = nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.Linear(WIDTH, 5))
    print("ready", flush=True)
    sys.stdin.readline()
    orchestrator.register_model(model)
    print("losses", json.dumps(orchestrator.start_training(batches, 1).losses), flush=True)
"""
MEGABYTE = 1 << 20


def _line_with(process: "subprocess.Popen[str]", text: str) -> str:
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(process.stderr.read())


def _limit(process: int, more: int) -> None:
    """Let a process have so many bytes more than it has."""
    status = Path(f"/proc/{process}/status").read_text()
    now = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) << 10
    resource.prlimit(process, resource.RLIMIT_AS, (now + more, now + more))


def _run(folder: Path, backend: str, rows: int, width: int, more: int | None) -> tuple[str, str]:
    """Output of a run whose worker may use `more` bytes beyond its memory at the start."""
    environment = os.environ | {"GT_BACKEND": backend, "MASTER_IP": "127.0.0.1", "GT_THREADS": "1"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"text": True}
    words = [sys.executable, "-c", PROGRAM, str(folder), str(rows), str(width)]
    processes = [subprocess.Popen(words, env=environment, **streams)]
    try:
        port = re.search(r"127\.0\.0\.1:(\d+)", _line_with(processes[0], "listening on"))[1]
        words = [sys.executable, "-m", "gt.worker", "-p", port]
        worker = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
        processes.append(worker)
        _line_with(processes[0], "ready")
        if more is not None:
            _limit(worker.pid, more)
        return processes[0].communicate("\n", timeout=50)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("backend", ["native", pytest.param("pytorch", marks=pytest.mark.slow)])
def test_a_step_that_does_not_fit_runs_in_parts_to_the_same_losses(backend, tmp_path):
    rows, width = 2048, 8192  # an activation takes 64 MiB
    limited, errors = _run(tmp_path, backend, rows, width, 170 * MEGABYTE)
    assert "out of memory: each micro-batch runs in 2 parts from now" in limited, errors
    free, errors = _run(tmp_path, backend, rows, width, None)
    assert "out of memory" not in free
    found = [json.loads(re.search("losses (.*)", text)[1]) for text in (limited, free)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert "UnreadFailure" not in errors


@pytest.mark.parametrize("backend", ["native", "pytorch"])
def test_a_model_that_does_not_fit_ends_with_what_helps(backend, tmp_path):
    printed, errors = _run(tmp_path, backend, 16, 1 << 20, 64 * MEGABYTE)  # weights of 52 MiB
    assert "losses" not in printed
    assert "UnreadFailure" not in errors
    for word in (
        "OutOfMemoryError",
        "batch_size",
        "use_amp",
        "gradient_checkpointing",
        "recompute",
    ):
        assert word in errors
