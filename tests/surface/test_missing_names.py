"""A name that GT lacks: what the error says, and that asking for it harms nothing."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gt
from gt import missing, missing_methods

SPACES = ["gt", "gt.nn", "gt.nn.functional", "gt.optim", "gt.linalg", "gt.fft", "gt.special"]


def path_of(title, name):
    """Path of PyTorch's name below the package, such as `nn.quantized`."""
    return f"{title}.{name}".removeprefix("gt.")


@pytest.mark.parametrize("title", SPACES)
def test_a_miss_says_whether_pytorch_has_it(title):
    module = importlib.import_module(title)
    theirs = importlib.import_module(title.replace("gt", "torch", 1))
    names = missing._names()[title]
    files = {file.name for file in pkgutil.iter_modules(getattr(theirs, "__path__", None) or [])}
    assert all(hasattr(theirs, name) for name in names - files)
    for name in [name for name in names if not hasattr(module, name)]:
        with pytest.raises(
            AttributeError, match=f"PyTorch has `{path_of(title, name)}`; GT does not yet"
        ):
            getattr(module, name)
    with pytest.raises(AttributeError, match=f"module '{title}' has no attribute 'zzz'$"):
        module.zzz  # noqa: B018
    assert getattr(module, "zzz", 5) == 5


@pytest.mark.parametrize("title", sorted(missing._names()))
def test_no_module_is_silent_about_a_miss(title):
    module = importlib.import_module(title)
    for name in [name for name in missing._names()[title] if not hasattr(module, name)]:
        with pytest.raises(
            AttributeError, match=f"PyTorch has `{path_of(title, name)}`; GT does not yet"
        ):
            getattr(module, name)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("import gt.fx", "PyTorch has `fx`; GT does not yet"),
        ("import gt.fx.passes", "PyTorch has `fx`; GT does not yet"),
        ("from gt import hub", "PyTorch has `hub`; GT does not yet"),
        ("from gt.nn import quantized", "PyTorch has `nn.quantized`; GT does not yet"),
        ("import gt.utils.benchmark", "PyTorch has `utils.benchmark`; .* is timeit around"),
        (
            "from gt.utils import mobile_optimizer",
            "PyTorch has `utils.mobile_optimizer`; GT does not yet",
        ),
        (
            "from gt.utils.mobile_optimizer import f",
            "PyTorch has `utils.mobile_optimizer`; GT does not",
        ),
        ("import gt.nn.attention.flex_attention", "is gt.nn.functional.scaled_dot_product_att"),
        ("import gt.onnx.symbolic_helper", "PyTorch has `onnx.symbolic_helper`; GT does not yet"),
        ("import gt.jit.frontend", "PyTorch has `jit.frontend`; GT does not yet"),
        ("import gt.distributed.fsdp", "PyTorch has `distributed.fsdp`; GT does not yet"),
        ("import gt.cuda.comm", "PyTorch has `cuda.comm`; GT does not yet"),
        ("import gt.fx", "not yet; docs/coverage.md lists what it has.$"),
        ("import gt.zzz", "No module named 'gt.zzz'$"),
        ("from gt.nn import Zzz", "cannot import name 'Zzz' from 'gt.nn'"),
        ("import gt.relu", "No module named 'gt.relu'$"),
    ],
)
def test_an_import_that_finds_nothing_says_whether_pytorch_has_it(line, text):
    with pytest.raises(ImportError, match=text):
        exec(line, {})


def modules_of_pytorch():
    """The modules beside those that GT has, whether PyTorch loads them by itself or not."""
    for title in sorted(missing._names()):
        theirs = importlib.import_module(title.replace("gt", "torch", 1))
        here = importlib.import_module(title)
        own = {file.name for file in pkgutil.iter_modules(getattr(here, "__path__", None) or [])}
        for file in pkgutil.iter_modules(getattr(theirs, "__path__", None) or []):
            is_listed = file.name in missing.names_of(title) and hasattr(here, "__path__")
            if is_listed and file.name not in own and not hasattr(here, file.name):
                yield f"{title}.{file.name}"


def test_every_module_of_pytorch_that_gt_lacks_says_so():
    titles = list(modules_of_pytorch())
    assert len(titles) > 100
    for title in titles:
        with pytest.raises(ImportError, match=r"^PyTorch has `[\w.]+`; GT does not yet"):
            importlib.import_module(title)


@pytest.mark.parametrize("tensor", ["gt.ones(2)", "gt.nn.Parameter(gt.ones(2))"])
def test_python_puts_the_spelling_of_a_method_right(tensor):
    """It looks at no class of more than 750 names."""
    code = f"import gt; {tensor}.reshap(2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "has no attribute 'reshap'. Did you mean: 'reshape'?" in done.stderr


def test_a_method_that_gt_lacks_says_that_pytorch_has_it():
    names = missing_methods.FILE.read_text().split()
    assert names
    for name in names:
        with pytest.raises(AttributeError, match=f"^PyTorch has `Tensor.{name}`; GT does not yet."):
            getattr(gt.ones(2), name)
        assert hasattr(torch.Tensor, name)
    with pytest.raises(AttributeError, match=r"The nearest is Tensor.resize_\.$"):
        gt.ones(2).resize(2)


def test_switches_are_modules_to_import():
    names = {}
    exec("import gt.backends.cudnn as cudnn; from gt.backends.cuda import matmul", names)
    assert names["cudnn"] is gt.backends.cudnn
    assert names["matmul"] is gt.backends.cuda.matmul


def test_a_wrong_spelling_is_put_right():
    with pytest.raises(AttributeError, match="Did you mean: 'zeros'"):
        gt.zeross  # noqa: B018


@pytest.mark.parametrize("name", ["cholesky", "eig", "lstsq", "qr", "solve", "symeig"])
def test_a_method_that_pytorch_moved_to_linalg_says_where_it_is(name):
    assert name in missing.INSTEAD_OF_METHODS
    with pytest.raises(AttributeError, match=r"The nearest is gt.linalg.\w+\("):
        getattr(gt.eye(2), name)


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (gt.nn, "Relu", "ReLU"),
        (gt.optim, "Adamw", "AdamW"),
        (gt.nn.functional, "relu_6", "relu6"),
        (gt.utils.data, "Dataloader", "DataLoader"),
        (gt.nn.functional, "soft_max", "softmax"),
    ],
)
def test_case_and_underscores_count_less_than_letters(module, name, meant):
    with pytest.raises(AttributeError, match=f"Did you mean: '{meant}'"):
        getattr(module, name)


def test_the_list_is_read_at_the_first_miss():
    code = "import gt, sys; assert 'gt.missing' not in sys.modules; print(hasattr(gt, 'zzz'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "False\n", done.stderr


def test_the_list_is_that_of_the_torch_at_hand():
    if not missing.FILE.read_text().splitlines()[0].endswith(f"{torch.__version__[:6]}."):
        pytest.skip("of another torch")
    tool = Path(__file__).resolve().parent.parent.parent / "tools/missing_names.py"
    assert subprocess.run([sys.executable, tool, "--check"], timeout=50).returncode == 0


def test_switches_and_versions_are_taken():
    for m in (gt, torch):
        assert not m.backends.mps.is_available()
        assert isinstance(m.version.__version__, str)
    gt.backends.cudnn.benchmark = gt.backends.cudnn.deterministic = True
    gt.backends.cuda.matmul.allow_tf32 = True
    gt.backends.cuda.preferred_linalg_library("magma")
    for m in (gt, torch):
        assert m.backends.mha.get_fastpath_enabled()
        m.backends.mha.set_fastpath_enabled(False)
        assert not m.backends.mha.get_fastpath_enabled()
        m.backends.mha.set_fastpath_enabled(True)
    assert gt.version.cuda is None
    x = gt.ones(2, requires_grad=True)
    gt.utils.checkpoint.checkpoint(gt.exp, x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == pytest.approx([2.718282] * 2)
