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
WITHIN = 1e-5  # of a number, where its program allows no more


def printed(words, entry, folder, **settings):
    """The numbers that a program prints, but for those of its speed, as text."""
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
        | ({"GT_PUBLIC_DOUBLE": "1"} if entry.get("double") else {})
        | settings,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return NUMBER.findall(TIMES.sub("", done.stdout))


def last_digit(number):
    """One unit of a printed number's last digit."""
    digits, _, power = number.lower().partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def check(seen, expected, within=WITHIN):
    """Two programs printed the same numbers, but for rounding of the last digit and `within`."""
    assert len(seen) == len(expected) > 0, (seen, expected)
    reference = np.array([float(x) for x in expected])
    units = np.array([last_digit(x) for x in expected])
    difference = np.abs(np.array([float(x) for x in seen]) - reference)
    allowed = within * np.abs(reference) + 1.01 * units
    assert (difference <= allowed).all(), (seen, expected)


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


def test_what_counts_as_the_same_number():
    check(["8.18", "1e-05", "3570.03"], ["8.19", "1.1e-05", "3570.03"])
    for other in ("8.16", "8.3", "nan"):
        with pytest.raises(AssertionError):
            check([other], ["8.18"])
    check(["2.004"], ["2.0084"], within=5e-3)
    with pytest.raises(AssertionError):
        check(["2.004"], ["2.0084"])
    with pytest.raises(AssertionError):
        check([], [])


def test_the_page_has_a_row_for_each():
    page = (ROOT / "docs/pytorch_programs.md").read_text("utf-8")
    rows = re.findall(r"^\| (\S+/\S+) \| `(.*?)` \|", page, re.MULTILINE)
    assert [f"{repository} {program}" for repository, program in rows] == [
        f"{entry['repository']} {program['file']}"
        + (f" ({program['kind']})" if "kind" in program else "")
        for entry in LIST["repository"]
        for program in entry["program"]
    ]


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
    seen = printed(WAYS[way], entry, folder)
    check(seen, expected(name, repository), entry.get("within", WITHIN))
