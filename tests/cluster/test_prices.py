"""Prices of traffic between workers: measured as they join, kept in a file, read by programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cluster import Cluster, until

LINE = re.compile(r"(message|byte)\[(\d),(\d)\]=([0-9.e-]+)")


def pairs(file: Path) -> dict[tuple[str, str, str], float]:
    """Prices in microseconds, by what and between whom."""
    matches = LINE.findall(file.read_text(encoding="utf-8"))
    return {(name, low, high): float(price) for name, low, high, price in matches}


def test_gt_prices_rewrites_the_links_and_leaves_the_rest(tmp_path):
    file = tmp_path / "prices"
    file.write_text("kernel=3.5\nmessage[0,1]=12345678\nbyte[7,9]=1\n", encoding="utf-8")
    command = [sys.executable, "-m", "gt", "prices", str(file), "--workers", "3"]
    settings = os.environ | {"GT_BACKEND": "numpy"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == file.read_text(encoding="utf-8")
    assert "kernel=3.5\n" in done.stdout
    links = [("0", "1"), ("0", "2"), ("1", "2")]
    measured = pairs(file)
    assert sorted(measured) == [(name, *link) for name in ("byte", "message") for link in links]
    assert all(0.0 < price < 12345678 for price in measured.values())
    assert not list(tmp_path.glob("prices.*"))
    code = "import gt; gt.gpu_workers(2); print(gt.distribute(gt.ones(4), dim=0).sum().item())"
    settings |= {"GT_PRICES": str(file)}
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, timeout=50, env=settings)
    assert done.stdout == "4.0\n", done.stderr


def test_what_the_file_says_is_not_measured_again(tmp_path):
    file = tmp_path / "prices"
    file.write_text("message[0,1]=777\n", encoding="utf-8")
    with Cluster(2, arguments=("--prices", str(file), "--probe")) as cluster:
        cluster.wait_for_workers()
        code = "x = gt.distribute(gt.ones(6, 4), dim=0)\nprint((x @ gt.ones(4, 2)).sum().item())"
        assert cluster.run(code) == "48.0\n"
        cluster.add_worker()
        until(lambda: "measured 2 link(s)" in cluster.log)
        assert cluster.run(code) == "48.0\n"
    measured = pairs(file)
    assert measured["message", "0", "1"] == 777.0
    assert sorted({link[1:] for link in measured}) == [("0", "1"), ("0", "2"), ("1", "2")]


def test_one_worker_has_no_link(tmp_path):
    command = [sys.executable, "-m", "gt", "prices", str(tmp_path / "x"), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (
        1,
        "gt prices: --workers 1: a link has two ends\n",
    )
