"""A full disk: what GT writes says so once, names the file, and leaves nothing by half."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster, until

WAIT_SECONDS = 60.0
LIMIT_BYTES = 20_000
LONG = (
    "x = gt.zeros(2)\nfor _ in range(400): x = x + 1\nprint(x.tolist())\nprint((x * 2).tolist())\n"
)
SHORT = "print((gt.ones(2) + 1).tolist())\n"
ENDS = r"gt: the instruction log {file} ends here: {reason}; .* lost\n"
MISSING = r"gt: (\d+) records are missing at the end of the instruction log {file}\n"


# From here on files of the program end there, as on a full disk; its shared memory is made.
LIMITED = f"""
import resource
gt.ones(1).item()
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT_BYTES}, {LIMIT_BYTES}))
"""


def said(code: str, file: str) -> tuple[str, str]:
    run = subprocess.run(
        [sys.executable, "-c", f"import gt\n{code}"],
        env=os.environ | {"GT_INSTRUCTION_LOG": file, "GT_BACKEND": "numpy", "GT_WORKERS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout, run.stderr


@pytest.mark.parametrize("code", [LONG, SHORT], ids=["long", "short"])
def test_an_instruction_log_on_a_full_disk_says_so_once(code: str, tmp_path: Path) -> None:
    whole = tmp_path / "log"
    printed, errors = said(code, str(whole))
    assert errors == ""
    again, errors = said(code, "/dev/full")
    assert again == printed
    told = ENDS.format(file="/dev/full", reason=r"No space left on device \(os error 28\)")
    # Lost lines that fit one write are reported at the end, with their number.
    missing = MISSING.format(file="/dev/full")
    match = re.fullmatch(f"{told}(?:gt: )?{missing.removeprefix('gt: ')}", errors)
    assert match, errors
    assert int(match[1]) == len(whole.read_text().splitlines())


def test_a_log_that_fills_its_disk_ends_with_a_whole_line(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    printed, _ = said("gt.ones(1).item()\n" + LONG, str(whole))
    again, errors = said(LIMITED + LONG, str(cut))
    assert again == printed
    told = ENDS.format(file=cut, reason=r"File too large \(os error 27\)")
    match = re.fullmatch(told + MISSING.format(file=cut), errors)
    assert match, errors
    text = cut.read_text()
    assert 0 < len(text) <= LIMIT_BYTES
    assert text.endswith("\n")
    lines = whole.read_text().splitlines()
    assert len(text.splitlines()) + int(match[1]) == len(lines)
    check = [sys.executable, "-m", "gt", "trace", "--check", str(cut)]
    assert subprocess.run(check, capture_output=True, timeout=WAIT_SECONDS).returncode == 0


def test_a_dispatcher_whose_log_fails_goes_on() -> None:
    with Cluster(1, arguments=("--instruction-log", "/dev/full")) as cluster:
        cluster.wait_for_workers()
        assert cluster.run(LONG) == "[400.0, 400.0]\n[800.0, 800.0]\n"
        until(lambda: "instruction log /dev/full ends here: No space left" in cluster.log)
        cluster.server.terminate()
        cluster.server.wait(WAIT_SECONDS)
        log = cluster.log
    assert log.count("ends here") == 1
    assert re.search(r"ERROR \d+ records are missing at the end of the instruction log", log)


SAVES = {
    "safetensors": "gt.save({'w': gt.ones(10000)}, file)",
    "shards": "gt.save({'w': gt.ones(10000)}, file, max_shard_size='1GB')",
    "pickle": "gt.save({'w': gt.ones(10000)}, file, pickle=True)",
    "torch": "gt.save({'w': gt.ones(10000)}, file, format='torch')",
}


@pytest.mark.parametrize("form", SAVES)
def test_a_save_names_the_file_and_keeps_the_earlier_one(form: str, tmp_path: Path) -> None:
    if form == "torch":
        pytest.importorskip("torch")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"earlier")
    code = f"file = {str(file)!r}\ntry: {SAVES[form]}\n"
    code += "except OSError as error: print(error.errno, error.filename == file, error)\n"
    printed, _ = said(LIMITED + code, os.devnull)
    assert printed == f"27 True [Errno 27] File too large: {str(file)!r}\n"
    assert file.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [file]
