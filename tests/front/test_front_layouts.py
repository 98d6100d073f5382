"""PyTorch models on several workers: rules by module path, and the device without an import."""

import contextlib
import copy
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt
import gt.torch
from gt import _core

RULES = """\
layers.*.up: colpar
layers.*.down: rowpar
tokens: vocab
"""


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(2):
        yield


@contextlib.contextmanager
def layouts(path: pathlib.Path, text: str) -> Iterator[None]:
    """While the file holds."""
    file = path / "layouts.yaml"
    file.write_text(text)
    gt.load_config(str(file))
    yield
    file.write_text("")
    gt.load_config(str(file))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tokens.weight.t()


def losses(model: nn.Module, device: str) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(12, device=device).view(3, 4) % 10
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def test_rules_by_module_path_place_an_unchanged_model(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    model = Model()
    expected = losses(copy.deepcopy(model), "cpu")
    with layouts(tmp_path, RULES):
        remote = copy.deepcopy(model).to("mux")
        torch.testing.assert_close(losses(remote, "mux"), expected, rtol=1e-6, atol=1e-6)
    seen = {name: _core.layout(gt.torch.unwrap(p)) for name, p in remote.named_parameters()}
    assert seen["layers.1.up.weight"].startswith("shard(0)@")
    assert seen["layers.0.up.bias"].startswith("shard(0)@")
    assert seen["layers.0.down.weight"].startswith("shard(1)@")
    assert seen["tokens.weight"].startswith("shard(0)@")
    assert not seen["norm.weight"].startswith("shard")


def test_a_rule_that_means_nothing_is_said(tmp_path: pathlib.Path) -> None:
    with layouts(tmp_path, "layers.*.middle: colpar\n"):
        model = Model().to("mux")
        with pytest.warns(UserWarning, match=r"no parameter matches 'layers\.\*\.middle'"):
            model(torch.zeros(1, 2, dtype=torch.int64, device="mux"))


def gathers() -> int:
    counts = gt.debug.stats()
    return counts["all_gathers"] + counts["all_to_alls"]


def test_convolutions_of_a_batch_that_is_cut_gather_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3)
    remote = copy.deepcopy(model).to("mux")
    images = torch.randn(4, 3, 8, 8)
    model(images).square().sum().backward()
    cut = gt.torch.wrap(gt.distribute(gt.from_torch(images), dim=0))
    before = gathers()
    remote(cut).square().sum().backward()
    assert gathers() == before
    for mine, theirs in zip(remote.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_data_parallel_wrappers_name_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = nn.parallel.DistributedDataParallel
    model = nn.Linear(2, 2).to("mux")
    with pytest.raises(RuntimeError, match=r"one program drives all workers.*GT_DDP=ignore"):
        wrapper(model)
    monkeypatch.setenv("GT_DDP", "ignore")
    wrapped = wrapper(model)
    x = torch.ones(1, 2, device="mux")
    assert torch.equal(wrapped(x), model(x))
    with wrapped.no_sync():
        wrapped(x).sum().backward()
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]


@pytest.mark.parametrize("first", ["", "import gt.torch; ", "import torch; import gt.torch; "])
def test_the_device_needs_no_import_where_an_entry_point_names_it(
    tmp_path: pathlib.Path, first: str
) -> None:
    installed = tmp_path / "tensors_for_gt-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensors-for-gt\nVersion: 1.0\n"
    )
    (installed / "entry_points.txt").write_text("[torch.backends]\nmux = gt.torch:autoload\n")
    root = str(pathlib.Path(gt.__file__).parent.parent)
    path = os.pathsep.join([str(tmp_path), root])
    made = "x = torch.ones(3, device='mux') * 2; print(x.sum().item(), x.device)"
    program = f"{first}import torch; {made}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path, "GT_WORKERS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "6.0 mux:0\n", done.stderr
