"""tools/cuda_kernels.py compiles each CUDA source once for its content; nvcc is played here."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAID = """ptxas info    : Compiling entry function 'gt_{name}' for '{architecture}'
    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 32 bytes smem
"""


class Played:
    """The tool over a folder of its own, with a compiler that notes what it is given."""

    def __init__(self, folder, monkeypatch):
        spec = importlib.util.spec_from_file_location(
            "cuda_kernels_tool", ROOT / "tools" / "cuda_kernels.py"
        )
        self.tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.tool)
        self.compiled = []
        self.spilled = 0
        self.said_of = ("sm_80", "sm_90a")
        self.headers = b"headers"
        self.folder = folder / "cuda"
        self.folder.mkdir()
        self.write("big", "// much of it")
        self.write("gemm_sm90", "//")
        monkeypatch.setattr(self.tool, "KEPT", folder / "images")
        monkeypatch.setattr(self.tool, "sources", lambda: sorted(self.folder.glob("*.cu")))
        monkeypatch.setattr(self.tool, "needed", lambda: "nvcc")
        monkeypatch.setattr(self.tool, "shared_digest", lambda _: self.headers)
        monkeypatch.setattr(self.tool, "compiled", self.compile)

    def write(self, name, text):
        (self.folder / f"{name}.cu").write_text(text)

    def compile(self, compiler, source, target, output):
        assert compiler == "nvcc"
        self.compiled.append(source.name)
        output.write_text(f"{source.read_text()} {' '.join(target)}")
        found = [x for x in self.said_of if any(f"code={x}" in one for one in target)]
        return "".join(
            SAID.format(name=source.stem, architecture=x, spilled=self.spilled) for x in found
        )

    def count(self):
        """Names of the kernels compiled since the last call; clears the list."""
        made = [name for name in self.compiled if name.endswith(".cu")]
        self.compiled.clear()
        return sorted(made)


@pytest.fixture
def played(tmp_path, monkeypatch):
    return Played(tmp_path, monkeypatch)


LINES = ["gt_big sm_80 24 32 1", "gt_big sm_90a 24 32 1", "gt_gemm_sm90 sm_90a 24 32 1"]


def test_the_table_and_the_module_share_one_compilation(played, tmp_path):
    assert played.tool.table().splitlines()[1:] == LINES
    assert played.count() == ["big.cu", "gemm_sm90.cu"]
    played.tool.embed(tmp_path / "embedded")
    assert played.tool.table().splitlines()[1:] == LINES
    assert played.count() == []
    image = (tmp_path / "embedded" / "big.fatbin").read_text()
    assert image.startswith("// much of it -fatbin")
    assert image.endswith("code=sm_90a -gencode=arch=compute_80,code=compute_80")
    written = (tmp_path / "embedded" / "images.cpp").read_text()
    assert written.index('{"big", ') < written.index('{"gemm_sm90", ')


def test_what_changes_is_compiled_again(played):
    played.tool.table()
    played.count()
    played.write("big", "// changed now")
    played.tool.table()
    assert played.count() == ["big.cu"]
    played.tool.FLAGS["gemm_sm90.cu"] = ["-fmad=false"]
    played.tool.table()
    assert played.count() == ["gemm_sm90.cu"]
    played.headers = b"other headers"
    played.tool.table()
    assert played.count() == ["big.cu", "gemm_sm90.cu"]
    assert len(list(played.tool.KEPT.iterdir())) == 4  # an image and a report each


def test_a_spill_is_refused_each_time(played):
    played.spilled = 8
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"gt_big for sm_80 spills 8 bytes of registers"):
            played.tool.table()


def test_an_architecture_without_a_report_is_refused(played):
    played.said_of = ("sm_80",)
    with pytest.raises(SystemExit, match="ptxas says nothing of sm_90a"):
        played.tool.table()


def test_headers_belong_to_the_digest(tmp_path, monkeypatch):
    played = Played(tmp_path, monkeypatch)
    monkeypatch.undo()
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(played.tool, "ROOT", tmp_path)
    header = tmp_path / "csrc" / "cuda" / "one.h"
    header.parent.mkdir(parents=True)
    digests = set()
    for text in ("// one", "// two"):
        header.write_text(text)
        played.tool.shared_digest.cache_clear()
        digests.add(played.tool.shared_digest(str(nvcc)))
    nvcc.write_text("#!/bin/sh\necho release 2\n")
    played.tool.shared_digest.cache_clear()
    digests.add(played.tool.shared_digest(str(nvcc)))
    assert len(digests) == 3
