"""Everything in examples/guava runs, and the code that the paper of Guava shows runs as it stands
there: only the import's module is another, and names that the paper leaves open are given here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_hosts import two_networks  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples/guava"
SECONDS = 50


def run(program, *words, folder, **settings):
    """Output of a program, which must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, (program, *words))],
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [("--workers", 2), ("--workers", 2, "--pipeline")])
def test_the_transformer(words, tmp_path):
    printed = run(EXAMPLES / "transformer.py", *words, folder=tmp_path)
    assert re.search(r"^loss \d\.\d+ -> \d\.\d+$", printed, re.MULTILINE)
    assert ("stages 2" in printed) == ("--pipeline" in words)


def test_a_model_a_loader_and_a_loss_of_ones_own(tmp_path):
    printed = run(EXAMPLES / "custom_model.py", folder=tmp_path)
    assert "guava: memory of worker 1: allocated " in printed
    saved = sorted(path.name for path in (tmp_path / "checkpoints").glob("step_*"))
    assert saved == ["step_12", "step_16", "step_4", "step_8"]
    lines = (tmp_path / "checkpoints/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 18


def test_two_workers_of_a_shell_script_join_an_orchestrator(tmp_path):
    words = [EXAMPLES / "multi_node.py", "--workers", "2", "--master-port", "0"]
    orchestrator = subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    workers = []
    try:
        first = orchestrator.stdout.readline()
        host, port = re.search(r"listening on ([\w.]+):(\d+)", first).groups()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        settings = {"MASTER_IP": host, "MASTER_PORT": port, "PATH": path}
        workers = [
            subprocess.Popen([EXAMPLES / "launch_worker.sh", "0"], env=os.environ | settings)
            for _ in range(2)
        ]
        printed, _ = orchestrator.communicate(timeout=SECONDS)
        assert orchestrator.returncode == 0, printed
        assert [worker.wait(SECONDS) for worker in workers] == [0, 0]  # they end with it
    finally:
        for process in (orchestrator, *workers):
            process.kill()
            process.wait()
    assert "2 of 2 workers have joined" in printed
    assert "2 workers: data 2 x stages 1 x tensor 1" in printed
    assert re.search(r"^loss \d\.\d+ -> \d\.\d+$", printed, re.MULTILINE)


def test_two_machines_are_two_networks_with_a_cable(two_networks, tmp_path):  # noqa: F811
    here, there = (["ip", "netns", "exec", name] for name in two_networks)
    words = [EXAMPLES / "multi_node.py", "--workers", "2", "--master-ip", "10.213.0.1"]
    orchestrator = subprocess.Popen(
        [*here, sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    processes = [orchestrator]
    try:
        orchestrator.stdout.readline()
        token = re.search(r"GT_TOKEN=(\w+) ", orchestrator.stdout.readline())[1]
        settings = {"MASTER_IP": "10.213.0.1", "GT_TOKEN": token}
        command = [sys.executable, "-m", "gt.guava.workers.network_worker"]
        environment = os.environ | settings
        processes += [subprocess.Popen([*one, *command], env=environment) for one in (here, there)]
        printed, _ = orchestrator.communicate(timeout=SECONDS)
        assert orchestrator.returncode == 0, printed
        assert [worker.wait(SECONDS) for worker in processes[1:]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert "2 workers: data 2 x stages 1 x tensor 1" in printed
    assert re.search(r"^loss \d\.\d+ -> \d\.\d+$", printed, re.MULTILINE)
