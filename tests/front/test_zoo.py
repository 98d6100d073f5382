"""Every program of examples/zoo with torch and, only its imports changed, with GT: the same losses.

GT_ZOO_STEPS=100 runs the programs at their full length; the default is what CI has time for.
"""

import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from spread_session import workers

import gt

ZOO = Path(__file__).resolve().parent.parent.parent / "examples" / "zoo"
STEPS = int(os.environ.get("GT_ZOO_STEPS", "20"))
PROGRAMS = sorted(path.stem for path in ZOO.glob("*.py") if path.stem != "weights")
# Over two workers, in one session; by the first dimension of the largest upload, so that the
# batches of each are the largest so far and GT_AUTO_SHARD cuts them.
SPREAD = [
    "bert_mlm",
    "resnet",
    "siamese",
    "mingpt",
    "time_series_lstm",
    "nanogpt",
    "lbfgs_fit",
    "gcn",
    "super_resolution",
    "vit",
    "mnist_cnn",
    "vae",
    "realnvp",
    "polynomial",
    "mnist_lstm",
    "fourier_forecast",
]
# Names that a program needs to start; it is skipped while GT lacks them.
NEEDS = {
    "ctc": lambda: gt.nn.CTCLoss,
    "gat": lambda: gt.FloatTensor,  # Tensor(sizes) is one of these constructors
    "gcn": lambda: gt.FloatTensor,
    "super_resolution": lambda: gt.nn.init.orthogonal_,
}

pytestmark = pytest.mark.timeout(300 if STEPS > 20 else 60)


def with_gt(source: str) -> str:
    """The program with its imports of torch changed, and nothing else."""
    source = re.sub(r"^import torch$", "import gt as torch", source, flags=re.MULTILINE)
    return re.sub(
        r"^(import|from) torch\b(?!$)",
        r"\1 gt",
        source,
        flags=re.MULTILINE,
    )


def program(name: str, source: str) -> types.ModuleType:
    """A module of that text."""
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(source, str(ZOO / f"{name}.py"), "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.syspath_prepend(ZOO)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def expected():
    """The losses of each program with torch, run once."""
    known: dict[str, np.ndarray] = {}

    def losses(name: str) -> np.ndarray:
        if name not in known:
            known[name] = np.array(program(f"torch_{name}", text(name)).main(STEPS))
        return known[name]

    return losses


def text(name: str) -> str:
    return (ZOO / f"{name}.py").read_text()


def check(name, expected):
    try:
        NEEDS.get(name, lambda: None)()
    except AttributeError as absent:
        pytest.skip(str(absent))
    source = with_gt(text(name))
    assert not re.search(r"^(import|from) torch", source, flags=re.MULTILINE)
    losses = np.array(program(f"gt_{name}", source).main(STEPS))
    assert len(losses) >= STEPS
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(losses, expected(name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_losses_are_pytorchs(name, expected):
    check(name, expected)


@pytest.fixture(scope="module")
def two_workers():
    with pytest.MonkeyPatch.context() as patch, workers(2):
        patch.setenv("GT_AUTO_SHARD", "1")
        batch = gt.tensor(np.ones((4, 2), np.float32))  # the session begins here
        assert gt._core.layout(batch) == "shard(0)@[0,1]"
        yield


@pytest.mark.parametrize("name", SPREAD)
def test_over_two_workers_they_are_too(name, expected, two_workers):
    check(name, expected)


def test_there_are_twenty_and_half_of_them_are_spread():
    assert len(PROGRAMS) >= 20
    assert set(SPREAD) <= set(PROGRAMS)
    assert 2 * len(SPREAD) >= len(PROGRAMS)


def test_only_imports_change():
    source = "import torch\nimport torch.nn as nn\nfrom torch import optim\nfrom torch.a import b\n"
    expected = "import gt as torch\nimport gt.nn as nn\nfrom gt import optim\nfrom gt.a import b\n"
    assert with_gt(source + "torch.nn\n") == expected + "torch.nn\n"
