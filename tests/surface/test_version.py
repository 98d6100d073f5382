"""gt.__version__ says which PyTorch's surface GT has, and orders as PyTorch's version does."""

import copy
import operator
import pickle
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from torch._vendor.packaging.version import Version
from torch.torch_version import TorchVersion

import gt

RELEASES = "1.5.0 1.5 2 2.0 2.9.1 2.10 2.15 2.15.0 2.15.0.0 2.15.1 2.16 3 1!1.0 v2.15 2.15.0.post1"
PHASES = "2.15.0a 2.15.0a0 2.15.0alpha1 2.15.0b2 2.15.0rc1 2.15.0-rc.1 2.15.0c2 2.15.0.dev20260101"
MIXED = "2.15.0rc1.dev2 2.15.0rc1.post3 2.15.0.post1.dev4 2.15.0-1 2.15.0rev2 2.15.0preview3"
LOCALS = "2.15.0+cpu 2.15.0+cu132 2.15.0+gt0.1.0 2.15.0+gt.0.1 2.15.0+1 2.15.0+1.2 2.15.0+gt-0_1"
TEXTS = ("", "parrot", "2.15.x", "2.15.0+", "zebra", " 2.15.0 ", "2.15.0+GT0.1.0", "2..15", "1.a.b")
WORDS = [*f"{RELEASES} {PHASES} {MIXED} {LOCALS}".split(), *TEXTS]
OTHERS = [
    *WORDS,
    *((1, 5), (2, 15), (2, 15, 0), [2, 15, 1], (3,), ("2", "15"), ("2", "x"), (), (2, 15, "rc1")),
    *(Version(word) for word in ("1.5", "2.15.0", "2.15.0+gt0.1.0", "3.0rc1")),
    *(None, 2, 2.15, object, {2: 15}, b"2.15"),
]
OPERATORS = ("lt", "le", "eq", "ne", "ge", "gt")


def outcome(name, version, other):
    try:
        return getattr(operator, name)(version, other), getattr(operator, name)(other, version)
    except TypeError as error:
        return type(error)


@pytest.mark.parametrize("name", OPERATORS)
def test_versions_compare_as_pytorchs(name):
    wrong = [
        (word, other)
        for word in [str(gt.__version__), *WORDS]
        for other in OTHERS
        if outcome(name, gt.torch_version.TorchVersion(word), other)
        != outcome(name, TorchVersion(word), other)
    ]
    assert not wrong


def test_the_version_is_of_the_pytorch_whose_surface_gt_has():
    assert str(gt.__version__) == f"2.15.0+gt{gt.version.gt}"
    assert isinstance(gt.__version__, str)
    assert gt.version.__version__ is gt.__version__
    assert gt.__version__ >= "1.5.0"
    assert gt.__version__ > (2, 9)
    assert gt.__version__.split("+")[0].split(".")[:2] == ["2", "15"]
    assert hash(gt.__version__) == hash(str(gt.__version__))
    for copied in (copy.deepcopy(gt.__version__), pickle.loads(pickle.dumps(gt.__version__))):
        assert type(copied) is gt.torch_version.TorchVersion
        assert copied == gt.__version__


@pytest.mark.skipif(not torch.__version__.startswith("2.15."), reason="of another torch")
def test_the_version_is_that_of_the_torch_at_hand():
    assert gt.__version__.partition("+")[0] == torch.__version__.partition("+")[0]


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_command_and_the_wheel_say_gts_own(word):
    command = [sys.executable, "-m", "gt.tools.cli", word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout == f"gt {gt.version.gt}\n", done.stderr
    assert gt.version.gt == version("gt-tensor")
