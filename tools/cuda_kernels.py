"""Compiles every CUDA kernel and compares its registers with csrc/cuda/resources.txt.

A kernel that spills fails. No GPU is needed, only nvcc: the one on the path, or the package
`cuda-toolkit[nvcc,cccl]` of this Python, which `just cuda` installs into target/cuda.
"""

import argparse
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "csrc" / "cuda" / "resources.txt"
# Fat binaries and ptxas' reports, by a digest of all their inputs.
KEPT = ROOT / "target" / "cuda" / "images"
# Checks csrc's declarations against CUDA's own header; only this compilation reads it.
LAYOUT = ROOT / "csrc" / "cuda" / "host" / "layout_check.cpp"
ARCHITECTURES = ("sm_80", "sm_90a")
# Sources with instructions of one architecture only: no other machine code, and no PTX.
ONLY = dict.fromkeys(
    ("attention_backward_sm90.cu", "attention_sm90.cu", "gemm_sm90.cu"), ("sm_90a",)
)
# Random numbers must have the bits of the CPU's kernels, which fuse no multiply-adds.
FLAGS = {"random.cu": ["-fmad=false"]}
# Launches state their dynamic shared memory: csrc/cuda/dynamic_shared.txt.
HEADER = (
    "# kernel architecture registers static_shared_bytes barriers: "
    "`just cuda` compares, --write accepts\n"
)


def nvcc() -> str | None:
    """Path of the compiler: GT_NVCC, CUDACXX, the path, this Python's package, or that of `just
    cuda`.

    An empty GT_NVCC means none.
    """
    if "GT_NVCC" in os.environ:
        return os.environ["GT_NVCC"] or None
    made = (ROOT / "target" / "cuda" / "venv" / "lib").glob("python3*/site-packages")
    folders = [*(Path(folder) for folder in sys.path), *made]
    packaged = [folder / "nvidia" / "cu13" / "bin" / "nvcc" for folder in folders]
    found = [str(path) for path in packaged if path.exists()]
    candidates = [os.environ.get("CUDACXX"), shutil.which("nvcc"), *found]
    return next((path for path in candidates if path), None)


def needed() -> str:
    """Path of the compiler, as in nvcc(). Raises SystemExit where there is none."""
    compiler = nvcc()
    if compiler is None:
        raise SystemExit("no nvcc: pip install 'cuda-toolkit[nvcc,cccl]==13.2.*'")
    return compiler


def command_of(compiler: str, source: Path, target: list[str]) -> list[str]:
    """The command that compiles a source, without its output."""
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'cuda' / 'ptx'}"]
    command = [compiler, "-std=c++20", "-Werror", "all-warnings", "-Xptxas", "-v", *include]
    return [*command, *FLAGS.get(source.name, []), *target, str(source)]


def compiled(compiler: str, source: Path, target: list[str], output: Path) -> str:
    """ptxas' report on one file. Raises SystemExit with the compiler's messages where it fails."""
    command = [*command_of(compiler, source, target), "-o", str(output)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{source.name}: {' '.join(target)}\n{run.stdout}{run.stderr}")
    report = run.stdout + run.stderr
    # ptxas serialises products where no assignment of registers lets them overlap.
    if "wgmma.mma_async instructions are serialized" in report:
        raise SystemExit(f"{source.name}: ptxas serializes its wgmma\n{report}")
    return report


def kernel_lines(report: str) -> list[str]:
    """A line for each kernel and architecture of the report. SystemExit where one spills."""
    lines = []
    for part in report.split("Compiling entry function '")[1:]:
        name, architecture = part.split("'")[0:3:2]
        spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", part)]
        if any(spilled):
            raise SystemExit(f"{name} for {architecture} spills {sum(spilled)} bytes of registers")
        numbers = []
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"used (\d+) barriers"):
            found = re.search(pattern, part)
            numbers.append(found[1] if found else "0")
        lines.append(" ".join([name, architecture, *numbers]))
    return lines


def sources() -> list[Path]:
    return sorted((ROOT / "csrc" / "cuda").glob("*.cu"))


def at_once(compile_one: Callable[[T], R], jobs: list[T]) -> list[R]:
    """The results of all jobs, in order; runs one compiler on each core."""
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, jobs))


@functools.cache
def shared_digest(compiler: str) -> bytes:
    """Digest of the compiler and of every header that a kernel may include."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version)
    for header in sorted((ROOT / "csrc").rglob("*.h")):
        digest.update(f"{header.relative_to(ROOT)}\n".encode() + header.read_bytes())
    return digest.digest()


def image_of(compiler: str, source: Path) -> tuple[Path, str]:
    """The source's fat binary and ptxas' report, compiled once for each content."""
    target = fat_targets(source)
    digest = hashlib.sha256(shared_digest(compiler) + source.read_bytes())
    digest.update("\n".join(command_of(compiler, source, target)).encode())
    kept = KEPT / f"{source.stem}-{digest.hexdigest()[:32]}"
    image, report = (kept.with_suffix(suffix) for suffix in (".fatbin", ".txt"))
    if not report.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            made = Path(folder) / image.name
            said = compiled(compiler, source, target, made)
            (Path(folder) / report.name).write_text(said)
            made.replace(image)
            (Path(folder) / report.name).replace(report)  # the last: both are there
    for old in KEPT.glob(f"{source.stem}-{'[0-9a-f]' * 32}.*"):
        if old.stem != kept.name:
            old.unlink(missing_ok=True)
    return image, report.read_text()


def images(compiler: str) -> dict[Path, tuple[Path, str]]:
    """image_of() of each source. The largest sources start first, because they take longest."""
    order = sorted(sources(), key=lambda source: -source.stat().st_size)
    found = at_once(functools.partial(image_of, compiler), order)
    return dict(zip(order, found, strict=True))


def table() -> str:
    """Compiles everything and returns the text of resources.txt."""
    compiler = needed()
    with tempfile.TemporaryDirectory() as folder:
        compiled(compiler, LAYOUT, ["-c"], Path(folder) / "layout")
    lines: list[str] = []
    for source, (_, report) in images(compiler).items():
        found = kernel_lines(report)
        missing = {*architectures(source)} - {line.split()[1] for line in found}
        if missing:
            raise SystemExit(f"{source.name}: ptxas says nothing of {', '.join(sorted(missing))}")
        lines += found
    return HEADER + "\n".join(sorted(lines)) + "\n"


IMAGES = """// Written by tools/cuda_kernels.py: fat binaries by source.
#include "cuda/host/launcher.h"

{symbols}
namespace gt::cuda {{

const Images& embedded_images() {{
  static const Images all = {{
{rows}  }};
  return all;
}}

}}  // namespace gt::cuda
"""


def embed(folder: Path) -> None:
    """Copies each source's fat binary to `folder`, and writes images.cpp, which includes them."""
    folder.mkdir(parents=True, exist_ok=True)
    symbols, rows = "", ""
    for source, (made, _) in sorted(images(needed()).items()):
        image = folder / f"{source.stem}.fatbin"
        shutil.copyfile(made, image)
        start, end = (f"gt_image_{source.stem}_{side}" for side in ("start", "end"))
        symbols += (
            f'asm(".pushsection .rodata\\n.balign 16\\n{start}: .incbin \\"{image}\\"\\n"\n'
            f'    "{end}: .byte 0\\n.popsection");\n'
            f'extern "C" const char {start}[], {end}[];\n'
        )
        rows += f'      {{"{source.stem}", {{{start}, {end}}}}},\n'
    (folder / "images.cpp").write_text(IMAGES.format(symbols=symbols, rows=rows))


def check_loaded(folder: Path) -> None:
    """Raises SystemExit unless the module in `folder` loads and holds the images of all sources."""
    spec = importlib.util.spec_from_file_location("_kernels", folder / "_kernels.abi3.so")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} has no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = [source.stem for source in sources()]
    if module.cuda_sources() != expected:
        raise SystemExit(f"the module holds {module.cuda_sources()}, not {expected}")
    sys.stdout.write(f"the module holds {', '.join(expected)}\n")


def architectures(source: Path) -> tuple[str, ...]:
    """Architectures whose machine code the source's image holds."""
    return ONLY.get(source.name, ARCHITECTURES)


def fat_targets(source: Path) -> list[str]:
    """Machine code for each of the source's architectures, and PTX for later ones, compressed."""
    names = architectures(source)
    targets = [f"-gencode=arch={name.replace('sm', 'compute')},code={name}" for name in names]
    if source.name not in ONLY:
        targets.append("-gencode=arch=compute_80,code=compute_80")
    return ["-fatbin", "--compress-mode=size", *targets]


def main() -> None:
    """Compares, writes, or prepares the module's images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="accept what the compiler says now")
    parser.add_argument("--find", action="store_true", help="print nvcc's path, or nothing")
    parser.add_argument("--embed", type=Path, metavar="FOLDER", help="fat binaries and images.cpp")
    parser.add_argument("--loaded", type=Path, metavar="FOLDER", help="check the module there")
    arguments = parser.parse_args()
    if arguments.find:
        sys.stdout.write(nvcc() or "")
        return
    if arguments.embed:
        embed(arguments.embed.resolve())
        return
    if arguments.loaded:
        check_loaded(arguments.loaded.resolve())
        return
    made = table()
    if arguments.write:
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
