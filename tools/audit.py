"""Advisories against the packages that GT is built of: cargo deny or audit, and pip-audit.

A tool that is not installed, or cannot reach its database, checks nothing: that is said, and is no
failure. An advisory is one.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# Words of a tool that could not get its database.
UNREACHABLE = (
    "couldn't fetch advisory database",
    "failed to fetch advisory database",
    "failed to obtain advisory database",
    "error sending request",
    "ConnectionError",
    "Max retries exceeded",
    "Temporary failure in name resolution",
    "Could not resolve host",
)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A tool and what it looks at."""

    program: str
    words: tuple[str, ...]
    subject: str


AUDITS = (
    Audit(program="cargo-audit", words=("cargo", "audit"), subject="advisories of crates"),
    Audit(program="cargo-deny", words=("cargo", "deny", "check"), subject="licences of crates"),
    Audit(
        program="pip-audit",
        words=("pip-audit", "--local", "--skip-editable"),
        subject="advisories of Python packages",
    ),
)


def run(audit: Audit) -> bool:
    """Run one tool; True if it found something."""
    if shutil.which(audit.program) is None:
        print(f"{audit.program} is not installed: {audit.subject} were not checked")
        return False
    ended = subprocess.run(audit.words, capture_output=True, text=True, check=False)
    text = ended.stdout + ended.stderr
    if ended.returncode == 0:
        print(f"{audit.program}: nothing against {audit.subject.removeprefix('advisories of ')}")
        return False
    if any(words in text for words in UNREACHABLE):
        print(f"{audit.program} cannot reach its database: {audit.subject} were not checked")
        return False
    print(f"{audit.program}:\n{text}")
    return True


def main(audits: Sequence[Audit] = AUDITS) -> int:
    """Run all of them; 1 if one found something."""
    return int(sum(run(audit) for audit in audits) > 0)


if __name__ == "__main__":
    sys.exit(main())
