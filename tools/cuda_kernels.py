"""Compiles every CUDA kernel: its registers must be those of csrc/cuda/resources.txt.

A kernel that spills fails. No GPU is needed, only nvcc: that on the path, or the package
`cuda-toolkit[nvcc,cccl]` of this Python, which `just cuda` installs into target/cuda.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "csrc" / "cuda" / "resources.txt"
ARCHITECTURES = ("sm_80", "sm_90a")
# Random numbers have the bits of the CPU's kernels, which fuse nothing.
FLAGS = {"random.cu": ["-fmad=false"]}
HEADER = (
    "# kernel architecture registers shared_bytes barriers: `just cuda` compares, --write accepts\n"
)


def nvcc() -> str:
    """The compiler's path. SystemExit where there is none."""
    packaged = [Path(folder) / "nvidia" / "cu13" / "bin" / "nvcc" for folder in sys.path]
    found = [str(path) for path in packaged if path.exists()]
    candidates = [shutil.which("nvcc"), *found]
    compiler = next((path for path in candidates if path), None)
    if compiler is None:
        raise SystemExit("no nvcc: pip install 'cuda-toolkit[nvcc,cccl]==13.2.*'")
    return compiler


def compiled(compiler: str, source: Path, target: list[str], output: Path) -> str:
    """What ptxas says of one file. SystemExit with the compiler's messages where it fails."""
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'cuda' / 'ptx'}"]
    command = [compiler, "-std=c++20", "-Werror", "all-warnings", "-Xptxas", "-v", *include]
    command += [*FLAGS.get(source.name, []), *target, "-o", str(output), str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{source.name}: {' '.join(target)}\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr


def kernel_lines(report: str, architecture: str) -> list[str]:
    """One line a kernel of ptxas' report. SystemExit where one spills."""
    lines = []
    for part in report.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", part)]
        if any(spilled):
            raise SystemExit(f"{name} for {architecture} spills {sum(spilled)} bytes of registers")
        numbers = []
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"used (\d+) barriers"):
            found = re.search(pattern, part)
            numbers.append(found[1] if found else "0")
        lines.append(" ".join([name, architecture, *numbers]))
    return lines


def table() -> str:
    """Compiles everything."""
    compiler = nvcc()
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "csrc" / "cuda").glob("*.cu")):
            output = Path(folder) / "out"
            for architecture in ARCHITECTURES:
                report = compiled(compiler, source, ["-cubin", f"-arch={architecture}"], output)
                lines += kernel_lines(report, architecture)
            compiled(compiler, source, ["-ptx", "-arch=compute_80"], output)
    return HEADER + "\n".join(sorted(lines)) + "\n"


def main() -> None:
    """Compares, or writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="accept what the compiler says now")
    made = table()
    if parser.parse_args().write:
        GOLDEN.write_text(made)
        return
    before, now = (set(text.splitlines()) for text in (GOLDEN.read_text(), made))
    if before != now:
        gone, new = sorted(before - now), sorted(now - before)
        raise SystemExit(
            "\n".join([*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)])
        )
    sys.stdout.write(f"{len(now) - 1} kernels compiled, as in {GOLDEN.name}\n")


if __name__ == "__main__":
    main()
