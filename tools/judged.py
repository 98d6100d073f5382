"""Tells whether a long check has judged exactly these inputs before, here or elsewhere.

    python tools/judged.py cuda || just cuda    # runs it only if something changed
    python tools/judged.py --record cuda        # last step of the check itself

`tools/judged.txt` holds a line for each check: its name, and a digest of the files that it reads,
of its recipe, and of its compiler. It is committed, so what passed on one machine is not run again
on the next. Where anything differs, the check runs. Documents do not count, nor do lines of C++
that hold a comment alone.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDS = "tools/judged.txt"
HEADER = "# check, digest of its inputs: written by `python tools/judged.py --record`\n"
# Files and folders that a check reads, beside its recipe, as git's patterns.
INPUTS = {
    "cuda": (
        *("csrc/CMakeLists.txt", "csrc/algo", "csrc/bind", "csrc/core", "csrc/cuda"),
        "tools/cuda_kernels.py",
    ),
    "emulated": (
        *("csrc/algo", "csrc/core", "csrc/cuda", "csrc/emulator"),
        *("csrc/cpu/*random*", "tests/cuda/emulator_build.py", "tests/cuda/test_emulator.py"),
    ),
    "sanitize": (
        *("csrc", "tests/conftest.py", "tests/kernels/test_*_kernels.py"),
        *("tests/cuda/test_cuda_kernels.py", "tests/cuda/[!t]*.py"),
        *(f"tests/kernels/{name}.py" for name in ("aten_helper", "kernel_arrays", "kernel_module")),
    ),
}
CPP = (".h", ".cpp", ".cuh", ".cu")
COMMENT_LINE = re.compile(rb"^[ \t]*//.*\n", re.MULTILINE)
# Commands whose output names the compiler, where the recipe does not.
COMPILERS = {"cuda": (), "emulated": ("c++", "--version"), "sanitize": ("c++", "--version")}


def output(*command: str, root: Path = ROOT) -> bytes:
    """Standard output of a command in the checkout."""
    return subprocess.run(command, cwd=root, check=True, capture_output=True).stdout


def recipe(check: str, root: Path = ROOT) -> str:
    """Text of a recipe of the justfile: its head and the lines below, up to an empty one."""
    lines = (root / "justfile").read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if re.match(rf"{check}\b.*:$", line))
    end = next((at for at in range(start, len(lines)) if not lines[at]), len(lines))
    return "\n".join(lines[start:end])


def digest(check: str, root: Path = ROOT) -> str:
    """Digest of everything that decides what the check finds."""
    total = hashlib.sha256(recipe(check, root).encode())
    if COMPILERS[check]:
        total.update(output(*COMPILERS[check], root=root))
    listing = output(
        *("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"),
        *INPUTS[check],
        root=root,
    )
    for name in sorted(set(filter(None, listing.decode().split("\0")))):
        if name.endswith(".md"):
            continue
        file = root / name
        content = file.read_bytes() if file.exists() else b"deleted"
        if name.endswith(CPP):
            content = COMMENT_LINE.sub(b"", content)
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def records(root: Path = ROOT) -> dict[str, str]:
    """Digest of each check's last success."""
    file = root / RECORDS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(line.split() for line in lines if not line.startswith("#"))


def record(check: str, root: Path = ROOT) -> None:
    """Write that a check has passed."""
    passed = records(root) | {check: digest(check, root)}
    lines = "".join(f"{name} {value}\n" for name, value in sorted(passed.items()))
    (root / RECORDS).write_text(HEADER + lines, encoding="utf-8")


def is_judged(check: str, root: Path = ROOT) -> bool:
    """True if the check has passed with these inputs."""
    return records(root).get(check) == digest(check, root)


def main() -> int:
    """Exit code 0: the check need not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--record", action="store_true", help="the check has passed")
    parser.add_argument("check", choices=sorted(INPUTS))
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.check)
        return 0
    judged = is_judged(arguments.check)
    print(f"{arguments.check}: {'passed with these inputs before' if judged else 'inputs changed'}")
    return 0 if judged else 1


if __name__ == "__main__":
    sys.exit(main())
