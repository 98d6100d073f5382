"""Environment variables: what each may be, what is said where it means nothing, their page."""

import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import gt
from gt.config import environment, variables
from gt.tools.cli import main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SWITCHES = ["GT_AUTO_SHARD", "GT_NO_RING", "GT_VERBOSE", "GT_STABLE_ABI_ONLY"]
MEANINGS: dict[str, dict[str, Any]] = {
    "GT_WORKERS": {"3": 3, " 2 ": 2, "": None},
    "GT_THREADS": {"1": 1, "": None},
    "GT_BACKEND": {"torch": "pytorch", "PyTorch": "pytorch", "numpy": "numpy", "": "auto"},
    "GT_KERNELS": {"OFF": "off", "": "auto"},
    "GT_ATEN": {"on": "on", "": "auto"},
    "GT_FRONT": {"ON": "on", "": "auto"},
    "GT_PROCESS_GROUPS": {"gloo": "gloo", "": "auto"},
    "GT_COMPRESSION": {"int8": "int8", "on, BF16": "on,bf16", "": "auto"},
    "GT_IDLE_SECONDS": {"0": 0.0, "2.5": 2.5, "": 5.0},
    "GT_LOOK_AHEAD": {"0": 0, "17": 17, "": None},
    "GT_TRUSTED_NETWORKS": {"10.0.0.0/8, 192.168.7.0/24": ("10.0.0.0/8", "192.168.7.0/24")},
    "GT_CONFIG": {"layouts.yaml": "layouts.yaml", "": ""},
} | {
    name: dict.fromkeys(("1", "true", "YES", "On"), True)
    | dict.fromkeys(("0", "false", "No", "OFF", ""), False)
    for name in SWITCHES
}
NONSENSE = {
    "GT_WORKERS": ["abc", "0", "-1", "1.5", "²"],
    "GT_THREADS": ["0", "many"],
    "GT_BACKEND": ["foo"],
    "GT_KERNELS": ["maybe", "1"],
    "GT_ATEN": ["maybe"],
    "GT_FRONT": ["maybe"],
    "GT_PROCESS_GROUPS": ["mpi"],
    "GT_COMPRESSION": ["zip", "on,off", "off,int8", "bf16,int8"],
    "GT_IDLE_SECONDS": ["-1", "nan", "inf", "1e9", "soon"],
    "GT_LOOK_AHEAD": ["-2", "x"],
} | {name: ["maybe", "2", "-"] for name in SWITCHES}


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GT_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(("name", "word"), [(n, w) for n, words in MEANINGS.items() for w in words])
def test_meaning(monkeypatch: pytest.MonkeyPatch, name: str, word: str) -> None:
    monkeypatch.setenv(name, word)
    assert environment.read(variables.NAMES[name]) == MEANINGS[name][word]
    environment.check()


@pytest.mark.parametrize(("name", "word"), [(n, w) for n, words in NONSENSE.items() for w in words])
def test_nonsense_is_refused_before_a_session(
    monkeypatch: pytest.MonkeyPatch, name: str, word: str
) -> None:
    monkeypatch.setenv(name, word)
    expected = f"{name}={word}: expected {variables.NAMES[name].expected}"
    for start in (environment.session_options, lambda: gt.connect("127.0.0.1:1")):
        with pytest.raises(gt.ConfigError, match=re.escape(expected)):
            start()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("GT_WORKRES", "GT_WORKERS"), ("GT_CONFG", "GT_CONFIG"), ("GT_AUTOSHARD", "GT_AUTO_SHARD")],
)
def test_a_misspelt_name_is_told_at_the_users_line(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "3")
    monkeypatch.setenv("GT_SOMETHING_OF_ANOTHER_PROGRAM", "3")
    with pytest.warns(UserWarning, match=f"no variable {name}.*did you mean {meant}?") as told:
        environment.check()
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("name", variables.PROMISED)
def test_a_variable_of_the_papers_that_changes_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "0")
    environment.check()  # off is what holds
    monkeypatch.setenv(name, "1")
    with pytest.warns(UserWarning, match=f"^{name} changes nothing yet; ") as told:
        environment.check()
    assert [one.filename for one in told] == [__file__]


def test_a_program_gets_the_error_at_its_first_operation() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import gt\nx = gt.ones(2)\n"],
        env=os.environ | {"GT_IDLE_SECONDS": "-1", "GT_BACKEND": "native"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert '"<string>", line 2' in ended.stderr
    assert ended.stderr.endswith(
        "gt.errors.ConfigError: GT_IDLE_SECONDS=-1: expected seconds, up to 86400\n"
    )


def test_every_variable_that_is_read_is_declared() -> None:
    read = re.compile(r'(?:environ(?:\.get\(|\[)|getenv\(|var(?:_os)?\()\s*"(GT_\w+)"')
    sources = [*ROOT.glob("gt/**/*.py"), *ROOT.glob("crates/*/src/**/*.rs")]
    sources += [ROOT / "crates/python/build.rs", *ROOT.glob("csrc/**/CMakeLists.txt")]
    found = {name for path in sources for name in read.findall(path.read_text())}
    assert found <= set(variables.NAMES)


def test_gt_env(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GT_KERNELS", "on")
    monkeypatch.setenv("GT_TOKEN", "a secret")
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    assert "GT_KERNELS=on  (default: auto)" in printed
    assert "a secret" not in printed
    for fact in ("Python", "cores", "shared memory", "gt._kernels", "torch 2.", "numpy"):
        assert fact in printed
    monkeypatch.setenv("GT_WORKRES", "3")
    monkeypatch.setenv("GT_WORKERS", "x")
    assert main(["env", "--json"]) == 1
    printed = capsys.readouterr().out
    assert "GT_WORKERS=x: expected a whole number" in printed
    assert "GT_WORKRES: did you mean GT_WORKERS?" in printed
