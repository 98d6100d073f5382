"""Public training programs by `gt run`, as they stand: the losses that they print are PyTorch's.

GT_PUBLIC_PROGRAMS names the folder with their repositories as `owner/name`; without it, and without
`--slow`, nothing runs. `public_programs.toml` says which they are.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from public_data import copied

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = tomllib.loads(Path(__file__).with_name("public_programs.toml").read_text("utf-8"))
PROGRAMS = {
    " ".join([entry["repository"], program["file"], program.get("kind", "")]).strip(): (
        entry | program
    )
    for entry in LIST["repository"]
    for program in entry["program"]
}
WAYS = {"natively": ["-m", "gt", "run", "--native"], "front end": ["-m", "gt", "run"]}
TIMES = re.compile(r"ms/batch +[\d.]+|time:? +[\d.]+s?|[\d.]+m?s\b|mfu -?[\d.]+%")
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
LIMIT_S = 300


def printed(words, entry, folder, **settings):
    """The numbers that a program prints, but for those of its speed."""
    file = folder / entry["file"]
    path = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(folder)]
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", *words, ROOT / "tests/front/public_program.py"),
            *(str(entry["lines"]), file, *shlex.split(entry.get("arguments", ""))),
        ],
        cwd=folder / entry.get("folder", Path(entry["file"]).parent),
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "MPLBACKEND": "Agg"}
        | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        | settings,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return np.array([float(x) for x in NUMBER.findall(TIMES.sub("", done.stdout))])


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The numbers of each program by PyTorch on the host, with GT's random numbers; run once."""
    known = {}

    def numbers(name, repository):
        if name not in known:
            folder = tmp_path_factory.mktemp("host") / "copy"
            entry = PROGRAMS[name]
            copied(repository, entry.get("data", ""), folder)
            known[name] = printed([], entry, folder, GT_PUBLIC_DRAWS="1")
        return known[name]

    return numbers


def test_there_are_thirty():
    assert len(PROGRAMS) >= 30


@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_b18_a_public_program_prints_pytorchs_losses(name, way, expected, tmp_path):
    entry = PROGRAMS[name]
    repository = Path(os.environ.get("GT_PUBLIC_PROGRAMS", "/nowhere")) / entry["repository"]
    if not (repository / entry["file"]).exists():
        pytest.skip(f"GT_PUBLIC_PROGRAMS names no folder with {entry['repository']}")
    folder = copied(repository, entry.get("data", ""), tmp_path / "copy")
    got = printed(WAYS[way], entry, folder)
    assert got.size > 0
    np.testing.assert_allclose(got, expected(name, repository), rtol=2e-3, atol=2e-4)
