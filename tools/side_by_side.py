"""Run recipes of the justfile two at a time, and print the output of each when it ends.

    python tools/side_by_side.py types "wheel smoke" fuzz

An argument holds one recipe, or several that run one after another: those that need each other's
files, or wait for the same lock of cargo. They start in the order given. After a failure nothing
new starts, and the exit code is 1.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = 2  # most recipes compile or compute on every core for a part of their time only


class Printer:
    """Prints reports whole, one at a time, and remembers whether one failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards standard output and `failed`
        self.failed = False

    def report(self, recipe: str, output: bytes, code: int, seconds: str) -> None:
        """Print a recipe's output between two lines with its name."""
        with self._lock:
            sys.stdout.buffer.write(f"== just {recipe}\n".encode() + output)
            ending = f"exit code {code}, " if code else ""
            sys.stdout.buffer.write(f"== just {recipe}: {ending}{seconds}\n".encode())
            sys.stdout.buffer.flush()
            self.failed |= code != 0


def run(recipe: str, printer: Printer) -> None:
    """Run one recipe and report it, with the processor time of all its processes."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["just", recipe],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        elapsed = f"{time.monotonic() - start:.0f} s"
        busy = f"{usage.ru_utime + usage.ru_stime:.0f} s of processors"
        printer.report(recipe, output.read(), process.returncode, f"{elapsed}, {busy}")


def run_all(chains: Sequence[str]) -> bool:
    """Run the chains of recipes, JOBS at a time. True where all succeeded."""
    printer = Printer()

    def run_chain(chain: str) -> None:
        for recipe in chain.split():
            if not printer.failed:
                run(recipe, printer)

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for ended in [pool.submit(run_chain, chain) for chain in chains]:
            ended.result()
    return not printer.failed


def main() -> int:
    """Exit code 0: every recipe succeeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("recipes", nargs="+", help="a recipe, or several in one argument")
    return 0 if run_all(parser.parse_args().recipes) else 1


if __name__ == "__main__":
    sys.exit(main())
