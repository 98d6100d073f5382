"""The code that Guava's paper shows runs, block by block.

guava_blocks.py has the blocks, and says what differs.
"""

import os
import re
import subprocess
import sys

import guava_blocks as blocks
import pytest
import torch
from guava_blocks import executed, given, smaller
from spread_session import workers

import gt
from gt.guava import links

SECONDS = 55


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_single_machine_custom_loader_and_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with workers(1):
        names = executed(smaller(blocks.QUICK_START), given(torch))
        names["model"] = given(torch)["model"]
        executed(blocks.CUSTOM_LOADER + blocks.MEMORY, names)
    printed = capsys.readouterr().out
    assert printed.count("guava: 1 worker: data 1 x stages 1 x tensor 1") == 2
    assert "the loader's batches have 16 samples and batch_size is 32: 16 holds" in printed
    assert len((tmp_path / "checkpoints/metrics.jsonl").read_text().splitlines()) == 10 * (4 + 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_single_machine_with_the_sizes_of_the_paper(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with workers(1):
        executed(blocks.QUICK_START, given(torch))


def test_model_parallelism(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with workers(4):
        names = executed("from gt.guava import DistributedConfig, Orchestrator", given(torch))
        executed(blocks.MODEL_PARALLEL, names)
    assert "4 workers: data 1 x stages 4 x tensor 1, micro-batches 4" in capsys.readouterr().out


def test_configuration_custom_model_batch_size_and_troubleshooting(capsys):
    with workers(1):
        names = executed(blocks.CONFIGURATION + blocks.BATCH_SIZE, given(torch))
        assert names["config"].num_workers == 1  # there is no GPU
        assert names["effective_batch_size"] == 64
        executed(blocks.CONNECTION + blocks.OUT_OF_MEMORY, names)
        assert (names["config"].max_resends, names["config"].batch_size) == (5, 8)
        expected = "--ask-seconds 10.0 --asks 5 --resume-seconds 60.0 --peer-seconds 120.0"
        assert links.worker_options(names["config"]) == expected.split()
        model = blocks.CUSTOM_MODEL.replace(
            "DistributedConfig(...)", "DistributedConfig(num_workers=1)"
        )
        executed(model, names)
    assert "no effect" not in capsys.readouterr().out


NODE = """
import sys
sys.path.insert(0, {tests!r})
import {library} as lib, guava_blocks as blocks
blocks.executed(blocks.smaller(blocks.{name}, **{changes!r}), blocks.given(lib))
"""


@pytest.mark.slow
def test_an_orchestrator_and_four_workers(tmp_path):
    """Two programs, of which the second runs four times."""
    node = started(
        "ORCHESTRATOR_NODE", "torch", tmp_path, {"192.168.1.100": "127.0.0.1", "29500": "0"}
    )
    processes = [node]
    try:
        first = node.stdout.readline()
        port = re.search(r"listening on 127\.0\.0\.1:(\d+)", first)[1]
        changes = {"192.168.1.100": "127.0.0.1", "29500": port}
        processes += [started("WORKER_NODE", "gt", tmp_path, changes) for _ in range(4)]
        printed, _ = node.communicate(timeout=SECONDS)
        assert node.returncode == 0, printed
        assert "4 of 4 workers have joined" in printed
        assert "4 workers: data 4 x stages 1 x tensor 1" in printed
        for worker in processes[1:]:
            worker.communicate(timeout=SECONDS)
            assert worker.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def started(name, library, folder, changes):
    code = NODE.format(tests=os.path.dirname(__file__), name=name, library=library, changes=changes)  # noqa: PTH120
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"GT_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_nothing_of_a_run_is_left_in_the_program():
    assert not [name for name in gt.get_config() if name.startswith("guava")]
