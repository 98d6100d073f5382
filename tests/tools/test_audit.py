"""`just audit`: a tool that is absent or without its database is no failure; an advisory is one."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def audit() -> ModuleType:
    place = importlib.util.spec_from_file_location("audit_tool", ROOT / "tools/audit.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        (None, 0, "played is not installed: advisories of crates were not checked"),
        ("exit 0", 0, "played: nothing against crates"),
        (
            'echo "error: couldn\'t fetch advisory database: no network" >&2; exit 1',
            0,
            "played cannot reach its database: advisories of crates were not checked",
        ),
        ("echo RUSTSEC-2025-0141; exit 1", 1, "RUSTSEC-2025-0141"),
    ],
    ids=["absent", "nothing", "offline", "advisory"],
)
def test_each_ending(
    audit: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str | None,
    code: int,
    text: str,
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if script is not None:
        (tmp_path / "played").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "played").chmod(0o755)
    played = audit.Audit(program="played", words=("played",), subject="advisories of crates")
    assert audit.main((played,)) == code
    assert text in capsys.readouterr().out
