"""Build the wheel into target/dist, tag it with the oldest Linux that it runs on, and check it.

pip builds it as for `pip install .`, so Rust code that is already built is not built again: cargo
compares the interpreter's path, so pip runs here as its own script does, by `python3`. maturin
derives the tag from gt._core alone; auditwheel also reads gt._kernels, and its answer becomes the
tag: manylinux_2_34 means glibc 2.34 or later.
"""

import argparse
import email.message
import email.parser
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import name_stubs
from elftools.elf.elffile import ELFFile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target/dist"
SCRIPTS = {"gt", "gt-dispatcher", "gt-worker"}


def interpreter() -> str:
    """Path of this Python under the name by which a virtual environment's scripts start it."""
    named = pathlib.Path(sys.executable).with_name("python3")
    return str(named if named.exists() else sys.executable)


def run(*words: str | pathlib.Path) -> str:
    """Output of a Python module run as a program. Exits with its error output where it fails."""
    command = [interpreter(), "-m", *map(str, words)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> pathlib.Path:
    """Build one wheel into an empty folder, for any Linux of this machine's architecture."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", FOLDER, ROOT)
    (wheel,) = FOLDER.glob("*.whl")
    return wheel


def audit(wheel: pathlib.Path) -> tuple[str, dict[str, list[str]]]:
    """The tag of the oldest Linux that satisfies both modules, and the symbol versions they use."""
    report = json.loads(run("auditwheel", "show", "--json", wheel))
    assert not report["external_libs"], report["external_libs"]
    return report["overall_tag"], report["versioned_symbols"]


def name_after(wheel: pathlib.Path, tag: str) -> pathlib.Path:
    """Replace the wheel's platform tag; returns the new path."""
    run("wheel", "tags", "--remove", "--platform-tag", tag, wheel)
    (wheel,) = FOLDER.glob("*.whl")
    return wheel


def check_files(archive: zipfile.ZipFile) -> None:
    """Check the contents: gt/, its stubs, both modules, stripped; the licence; nothing else."""
    names = set(archive.namelist())
    command = ["git", "ls-files", "-co", "--exclude-standard", "gt"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    wanted = {name for name in listed.stdout.split() if (ROOT / name).exists()}
    wanted |= {f"gt/{name}" for name in name_stubs.stubs()}
    modules = {"gt/_core.abi3.so", "gt/_kernels.abi3.so"}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == wanted | modules, packed ^ (wanted | modules)
    for name in modules:
        sections = [part.name for part in ELFFile(io.BytesIO(archive.read(name))).iter_sections()]
        debug = [part for part in sections if part.startswith((".debug", ".symtab"))]
        assert not debug, f"{name} has {debug}"
    (licence,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def check_metadata(archive: zipfile.ZipFile) -> None:
    """Check pip's metadata: Python versions, dependencies (PyTorch for `worker`), programs."""

    def read(file: str) -> str:
        (name,) = [one for one in archive.namelist() if one.endswith(f".dist-info/{file}")]
        return archive.read(name).decode("utf-8")

    facts: email.message.Message = email.parser.Parser().parsestr(read("METADATA"))
    assert facts["Requires-Python"] == ">=3.10", facts["Requires-Python"]
    assert facts["License-Expression"] == "MIT", facts["License-Expression"]
    always = [one for one in facts.get_all("Requires-Dist", []) if "extra ==" not in one]
    needed = {re.split(r"[<>=~! ]", one)[0].lower() for one in always}
    assert needed == {"numpy", "pyyaml", "nanobind-backend"}, needed
    assert set(re.findall(r"^([\w-]+)=", read("entry_points.txt"), re.MULTILINE)) == SCRIPTS


def add_helper(wheel: pathlib.Path) -> pathlib.Path:
    """Add the worker's ATen helper for the torch of this environment to the wheel.

    The helper needs that torch's libraries, so it is added after the audit: where a system has no
    such torch, or older C and C++ libraries, a worker ignores it and compiles its own.
    """
    from gt.worker.aten import start

    with tempfile.TemporaryDirectory() as folder:
        run("wheel", "unpack", "--dest", folder, wheel)
        (tree,) = pathlib.Path(folder).iterdir()
        made = start.prebuild(tree / "gt/worker/aten/prebuilt")
        (made.parent / f"{made.stem}.lock").unlink()
        run("wheel", "pack", "--dest-dir", FOLDER, tree)
    (wheel,) = FOLDER.glob("*.whl")
    return wheel


def main() -> int:
    """Exit code 0: target/dist holds a correct wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument(
        "--helper", action="store_true", help="with the ATen helper for the torch that is installed"
    )
    options = parser.parse_args()
    wheel = build()
    tag, symbols = audit(wheel)
    wheel = name_after(wheel, tag)
    assert "-cp310-abi3-manylinux_" in wheel.name, wheel.name
    assert audit(wheel)[0] == tag
    with zipfile.ZipFile(wheel) as archive:
        check_files(archive)
        check_metadata(archive)
    if options.helper:
        wheel = add_helper(wheel)
    newest = {
        library: max(versions, key=lambda one: [int(part) for part in re.findall(r"\d+", one)])
        for library, versions in symbols.items()
    }
    used = ", ".join(f"{library} {version}" for library, version in sorted(newest.items()))
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB; at most {used}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
