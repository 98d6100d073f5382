"""tools/side_by_side.py: recipes two at a time, chains in order, output whole, failures told."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Stands for `just`: each recipe is what it does. Two of them wait for each other's file.
JUST = """\
#!/usr/bin/env bash
cd "$FOLDER"
echo "$1 starts"
touch "$1"
case $1 in
    left) while [ ! -e right ]; do sleep 0.01; done ;;
    right) while [ ! -e left ]; do sleep 0.01; done ;;
    second) test -e first ;;
    broken) exit 3 ;;
esac
echo "$1 ends"
"""


def side_by_side(folder: Path, *recipes: str) -> subprocess.CompletedProcess[str]:
    just = folder / "just"
    just.write_text(JUST)
    just.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "tools/side_by_side.py", *recipes],
        cwd=ROOT, capture_output=True, text=True, timeout=50,
        env=os.environ | {"PATH": path, "FOLDER": str(folder)},
    )  # fmt: skip


def test_two_recipes_run_at_once_and_each_ones_output_is_whole(tmp_path):
    done = side_by_side(tmp_path, "left", "right")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("left", "right"):
        whole = rf"== just {name}\n{name} starts\n{name} ends\n== just {name}: \d+ s, \d+ s of"
        assert re.search(whole, done.stdout), done.stdout


def test_recipes_of_one_argument_run_in_order(tmp_path):
    done = side_by_side(tmp_path, "first second")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\w+) ends", done.stdout, re.MULTILINE) == ["first", "second"]


def test_after_a_failure_nothing_new_starts(tmp_path):
    done = side_by_side(tmp_path, "broken first", "broken", "last")
    assert done.returncode == 1
    assert "== just broken: exit code 3" in done.stdout
    assert not (tmp_path / "first").exists()
    assert not (tmp_path / "last").exists()
