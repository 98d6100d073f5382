"""Checkpoints of PyTorch's read without PyTorch: what they hold is what torch.load gives."""

import io
import zipfile
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch

import gt
from gt.errors import InvalidUse, NotSupported
from gt.safetensors_file import FileFormatError
from gt.torch_checkpoint import STORAGES, Reading, read

X = torch.arange(12.0).view(3, 4)
DTYPES = [getattr(torch, str(dtype).removeprefix("gt.")) for dtype in STORAGES.values()]
LAYER = torch.nn.Linear(3, 2)
OPTIMIZER = torch.optim.Adam(LAYER.parameters())
LAYER(torch.ones(3)).sum().backward()
OPTIMIZER.step()


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


HELD: dict[str, Any] = {
    "a tensor": X,
    **{f"a tensor of {dtype}": X.to(dtype) for dtype in DTYPES},
    "transposed": X.t(),
    "a part": X[1:, 1:3],
    "expanded": torch.ones(1).expand(3),
    "empty": torch.empty(0, 3),
    "a number": torch.tensor(3.0),
    "a parameter": torch.nn.Parameter(X.clone()),
    "with a gradient": X.clone().requires_grad_(),
    "a state": LAYER.state_dict(),
    "an optimizer's state": OPTIMIZER.state_dict(),
    "plain": {"k": 3, "f": 0.5, "s": "a", "b": b"ab", "n": None, "t": (1, [True, {2}])},
    "collections": [OrderedDict(a=X), Counter("aab"), 1 + 2j, bytearray(b"a")],
    "descriptions": [torch.float32, torch.bfloat16, X.shape, torch.device("cpu")],
    "a tensor twice": [X, X],
    "memory twice": [X, X[1], X.view(-1)],
}


def saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def read_here(file: Any, *allowed: Any, weights_only: bool = True) -> Any:
    return read(file, Reading("the file", "Use PyTorch.", allowed, weights_only))


def described(value: Any) -> Any:
    """A value with numbers in place of tensors of either library."""
    if isinstance(value, torch.Tensor | gt.Tensor):
        kind = type(value).__name__
        name = str(value.dtype).rpartition(".")[2]
        return kind, name, list(value.shape), value.requires_grad, value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(k, described(x)) for k, x in value.items()]
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size | gt.Size):
        return type(value).__name__, [described(x) for x in value]
    if isinstance(value, torch.dtype | gt.dtype | torch.device | gt.device | torch.Size | gt.Size):
        return str(value).replace("gt.", "torch.")
    return value


@pytest.mark.parametrize("name", HELD)
def test_it_holds_what_pytorch_reads(name: str) -> None:
    expected = torch.load(saved(HELD[name]), weights_only=False)
    assert described(read_here(saved(HELD[name]), weights_only=False)) == described(expected)


def test_tensors_of_one_memory_share_it() -> None:
    whole, row, flat = read_here(saved(HELD["memory twice"]))
    row.fill_(-1)
    assert whole[1].tolist() == flat[4:8].tolist() == [-1.0] * 4
    first, second = read_here(saved(HELD["a tensor twice"]))
    first[0, 0] = 5
    assert second[0, 0].item() == 5


def test_nothing_runs_that_is_not_allowed() -> None:
    with pytest.raises(InvalidUse, match="Point, which weights_only does not allow"):
        read_here(saved(Point(X)))
    for point in (
        read_here(saved(Point(X)), Point),
        read_here(saved(Point(X)), weights_only=False),
    ):
        assert isinstance(point, Point)
        assert point.x.tolist() == X.tolist()


@pytest.mark.parametrize("weights_only", [True, False])
def test_more_of_pytorch_than_tensors_is_refused(weights_only: bool) -> None:
    for value in (LAYER, torch.nn.Linear, OPTIMIZER):
        with pytest.raises(NotSupported, match=r"torch\..*state_dict\(\)\. Use PyTorch\."):
            read_here(saved(value), weights_only=weights_only)
    with pytest.raises(NotSupported, match=r"before 1\.6\. Use PyTorch\."):
        read_here(saved(X, _use_new_zipfile_serialization=False))


def test_a_damaged_file_is_an_error() -> None:
    whole = saved(X).getvalue()
    for end in range(0, len(whole), 97):
        with pytest.raises((FileFormatError, NotSupported)):
            read_here(io.BytesIO(whole[:end]))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a/b.txt", "nothing")
    with pytest.raises(FileFormatError, match="no checkpoint"):
        read_here(other)
    short = io.BytesIO()
    with zipfile.ZipFile(saved(X)) as archive, zipfile.ZipFile(short, "w") as copy:
        for name in archive.namelist():
            data = archive.read(name)
            copy.writestr(name, data[:8] if name.endswith("data/0") else data)
    with pytest.raises(FileFormatError, match="shorter than its tensors"):
        read_here(short)
