"""`gt run`: programs as they stand, in the way of `python`, with `import torch` answered by GT."""

import importlib
import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from cluster import Cluster

from gt import torch_imports
from gt.tools import run as command

ROOT = Path(__file__).resolve().parent.parent.parent
ZOO = ROOT / "examples" / "zoo"
STEPS = 20
PROGRAMS = sorted(path.stem for path in ZOO.glob("*.py") if path.stem != "weights")
NATIVELY = re.compile(r"gt run: natively: `import torch` is gt \S+\n")


def python(*words, folder=None, timeout=50, **settings):
    """A Python process that has ended: status, output, errors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | settings,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def gt_run(*words, folder=None, **settings):
    return python("-m", "gt", "run", *words, folder=folder, **settings)


def natively(folder, text, *words, **settings):
    """Output of the program, which must succeed."""
    (folder / "program.py").write_text(textwrap.dedent(text))
    done = gt_run("--native", *words, "program.py", folder=folder, **settings)
    assert done.returncode == 0, done.stderr
    assert NATIVELY.fullmatch(done.stderr), done.stderr
    return done.stdout


# ---- programs of the zoo ----

# One process for all of them: each begins as an import, and so with `import torch`.
ALL = """
import importlib, json, sys
import torch

torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
losses = {}
for name in sys.argv[4:]:
    losses[name] = list(map(float, importlib.import_module(name).main(int(sys.argv[2]))))
with open(sys.argv[3], "w") as file:
    json.dump(losses, file)
files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
is_loaded = any("site-packages/torch/" in file for file in files)
assert is_loaded == (torch.__name__ == "torch")
"""
WAYS = {"natively": ["--native"], "front end": []}
# By the front end; the others with --slow.
SAMPLE = {"actor_critic", "gat", "lbfgs_fit", "mnist_cnn", "polynomial", "vae", "vit"}


@pytest.fixture(scope="module", params=WAYS)
def losses(request, tmp_path_factory):
    """The losses of all programs by `gt run`, or of those for which there is time."""
    is_whole = request.param == "natively" or request.config.getoption("--slow")
    names = PROGRAMS if is_whole else sorted(SAMPLE)
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "all.py").write_text(ALL)
    results = folder / "losses.json"
    words = (folder / "all.py", ZOO, STEPS, results, *names)
    done = gt_run(*WAYS[request.param], *words, timeout=300 if is_whole else 50)
    assert done.returncode == 0, done.stderr
    return json.loads(results.read_text())


@pytest.fixture(scope="module")
def expected():
    """The losses of each program with PyTorch, run once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    known = {}

    def run(name):
        if name not in known:
            sys.modules[f"with_torch_{name}"] = module = type(sys)(f"with_torch_{name}")
            vars(module)["__file__"] = str(ZOO / f"{name}.py")
            exec(compile((ZOO / f"{name}.py").read_text(), name, "exec"), vars(module))
            known[name] = [float(loss) for loss in module.main(STEPS)]
        return known[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ZOO)
        yield run
    torch.set_num_threads(threads)


@pytest.mark.timeout(300)  # with --slow the front end runs all of them in one process
@pytest.mark.parametrize("name", PROGRAMS)
def test_b18_a_program_of_the_zoo_has_pytorchs_losses(name, losses, expected):
    if name not in losses:
        pytest.skip("slow: run with --slow")
    assert len(losses[name]) >= STEPS
    np.testing.assert_allclose(losses[name], expected(name), rtol=1e-4, atol=1e-5)


def test_b18_a_program_prints_what_it_prints_with_python():
    expected, got = python(ZOO / "gcn.py"), gt_run("--native", ZOO / "gcn.py")
    assert (got.returncode, got.stdout) == (0, expected.stdout)


# ---- imports ----

IMPORTS = """
import torch; x = torch
import torch as t; x = t
import torch.nn; x = torch.nn
import torch.nn, torch.optim; x = torch.optim
import torch.nn as nn; x = nn
import torch.nn.functional as F; x = F
import torch.nn.functional; x = torch.nn.functional
import torch.optim.lr_scheduler as schedules; x = schedules
import torch.backends.cudnn as cudnn; cudnn.benchmark = True; x = cudnn
import torch.backends.cuda; x = torch.backends.cuda
import torch.multiprocessing as mp; x = mp
import torch.multiprocessing.spawn; x = torch.multiprocessing.spawn
import torch.distributed as dist; x = dist
import torch.utils.data as data; x = data
import torch.cuda.amp as amp; x = amp
from torch import nn; x = nn
from torch import nn, optim as o; x = o
from torch import (Tensor, nn); x = Tensor
from torch import *; x = ones
from torch.nn import *; x = Linear
from torch.nn.functional import *; x = relu
from torch.nn import functional as F; x = F
from torch.nn import Linear, Module; x = Linear
from torch.nn.functional import cross_entropy; x = cross_entropy
from torch.nn.modules.linear import Linear; x = Linear
from torch.nn.parameter import Parameter; x = Parameter
from torch.nn.parallel import DistributedDataParallel as DDP; x = DDP
from torch.nn.parallel.distributed import DistributedDataParallel; x = DistributedDataParallel
from torch.nn.utils import clip_grad_norm_; x = clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence; x = pad_sequence
from torch.optim import SGD; x = SGD
from torch.optim.adam import Adam; x = Adam
from torch.optim.lr_scheduler import StepLR; x = StepLR
from torch.utils.data import DataLoader, Dataset; x = Dataset
from torch.utils.data.dataloader import default_collate; x = default_collate
from torch.utils.data.sampler import RandomSampler; x = RandomSampler
from torch.utils.checkpoint import checkpoint; x = checkpoint
from torch.autograd import Variable; x = Variable
from torch.autograd.variable import Variable; x = Variable
from torch.cuda.amp import GradScaler, autocast; x = GradScaler
from torch.cuda.amp.grad_scaler import GradScaler; x = GradScaler
from torch.amp.autocast_mode import autocast; x = autocast
from torch.distributions import Categorical; x = Categorical
from torch.distributions.normal import Normal; x = Normal
from torch.func import vmap; x = vmap
x = __import__("torch")
x = __import__("torch.nn")
x = __import__("torch.nn", fromlist=["nn"])
from importlib import import_module; x = import_module("torch.nn")
from importlib import import_module; x = import_module(".functional", "torch.nn")
import sys, torch.nn; x = sys.modules["torch.nn"]
import importlib.util; x = type(importlib.util.find_spec("torch.nn"))
import importlib.util; x = importlib.util.find_spec("torch.nope")
exec("import torch.nn as nn; x = nn")
x = (lambda: __import__("torch").nn)()
""".strip().splitlines()
# Imports that fail, in both.
FAILURES = """
import torch.nope
import torch.nn.nope
from torch import nope
from torch.nn import Nope
from torch.nope import thing
import torch; torch.nope
import torch.nn as nn; nn.Nope
from importlib import import_module; import_module("torch.nope")
""".strip().splitlines()
# Imports of what GT lacks: a text that says so, and the way out.
LACKING = """
import torch; torch.fx
import torch; torch.ones(2).apply_
import torch.fx
from torch import fx
from torch.fx import symbolic_trace
import torch.nn.grad
from torch.optim import swap_in_optimizer_params_and_state
import torch.utils.tensorboard
import torch; torch.load("checkpoint.pt")
""".strip().splitlines()

EACH = """
import json, sys

def shown(value):
    name = getattr(value, "__name__", None) or type(value).__name__
    return name.replace("gt", "torch", 1) if name.partition(".")[0] == "gt" else name

results = []
for line in json.load(open(sys.argv[1])):
    names = {}
    try:
        exec(line, names)
        results.append(shown(names["x"]) if "x" in names else None)
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        results.append([kinds[0], str(error)])
json.dump(results, open(sys.argv[2], "w"))
"""


def results(folder, *words):
    file = folder / "checkpoint.pt"
    torch.save({"x": torch.ones(1)}, file, _use_new_zipfile_serialization=False)
    (folder / "lines.json").write_text(json.dumps([*IMPORTS, *FAILURES, *LACKING]))
    (folder / "each.py").write_text(EACH)
    done = python(*words, "each.py", "lines.json", "results.json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """For each line what it gives with PyTorch, and natively."""
    pair = [
        results(tmp_path_factory.mktemp("imports"), *words)
        for words in ((), ("-m", "gt", "run", "--native"))
    ]
    lines = [*IMPORTS, *FAILURES, *LACKING]
    return dict(zip(lines, zip(*pair, strict=True), strict=True))


@pytest.mark.parametrize("line", IMPORTS)
def test_a_form_of_import_gives_gts(line, imported):
    expected, got = imported[line]
    assert got == ("Cudnn" if "cudnn" in line else "Cuda" if ".cuda;" in line else expected)


@pytest.mark.parametrize("line", FAILURES)
def test_an_import_that_fails_fails_as_in_pytorch(line, imported):
    expected, got = imported[line]
    assert got[0] == expected[0]
    assert got[1].split("from")[0] == expected[1].split("from")[0]


@pytest.mark.parametrize("line", LACKING)
def test_what_gt_lacks_says_its_name_and_the_way_out(line, imported):
    kind, text = imported[line][1]
    imports = "import torch;" not in line
    assert kind in {"ImportError", "ModuleNotFoundError"} if imports else {"AttributeError"} | {
        "NotImplementedError", "RuntimeError",
    }  # fmt: skip
    names = ("fx", "apply_", "grad", "swap_in", "tensorboard", "checkpoint.pt")
    assert next(name for name in names if name in line) in text
    assert "`gt run` without --native" in text


@pytest.mark.parametrize("file", torch_imports.FILES)
def test_a_package_has_the_names_of_pytorchs_file(file):
    theirs = importlib.import_module(f"torch.{file}")
    package = importlib.import_module(theirs.__name__.rpartition(".")[0])
    ours = importlib.import_module(torch_imports.own_name(f"torch.{file}"))
    exported = {
        name
        for name, value in vars(theirs).items()
        if name[0] != "_"
        and hasattr(package, name)
        and getattr(value, "__module__", "") == theirs.__name__
    }
    exported.discard("data_parallel")  # GT has the class
    assert exported
    assert {name for name in exported if not hasattr(ours, name)} == set()


def test_packages_and_functions_that_import_torch_find_gt(tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").write_text("from .layers import Twice\n")
    (tmp_path / "library" / "layers.py").write_text(
        textwrap.dedent("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        import torch.nn as nn
        if TYPE_CHECKING:
            from torch import Tensor

        class Twice(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                from torch.nn.functional import relu
                return relu(x) * 2
        """)
    )
    text = """
    import threading
    from library import Twice

    def later():
        import torch
        print(type(torch.ones(1)), Twice()(torch.tensor([-1.0, 1.5])).tolist())

    thread = threading.Thread(target=later)
    thread.start()
    thread.join()
    try:
        import torch.fx
    except ImportError:
        print("no fx")
    from einops.layers.torch import Rearrange
    import torch
    print(tuple(Rearrange("a b -> b a")(torch.ones(2, 3)).shape))
    """
    printed = natively(tmp_path, text)
    assert printed == "<class 'gt.Tensor'> [0.0, 3.0]\nno fx\n(3, 2)\n"


def test_processes_of_the_program_find_gt_too(tmp_path):
    text = """
    import multiprocessing
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.tensor(index**2), torch.__name__

    def name(_):
        import torch.nn
        return torch.nn.__name__

    if __name__ == "__main__":
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                print(method, pool.map(name, [0]))
            loader = DataLoader(Squares(), 2, num_workers=1, multiprocessing_context=method)
            print([(x.tolist(), y) for x, y in loader])
        print([(x.tolist(), y) for x, y in DataLoader(Squares(), 2, num_workers=1)])
    """
    batches = "[([0, 1], ('gt', 'gt')), ([4, 9], ('gt', 'gt'))]"
    printed = natively(tmp_path, text).splitlines()
    assert printed == ["spawn ['gt.nn']", batches, "forkserver ['gt.nn']", batches, batches]


SAVING = """
import argparse, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x)

class Other:
    pass

saved = {"model": torch.nn.Linear(2, 1).state_dict(), "args": argparse.Namespace(lr=0.1)}
torch.save(saved, "checkpoint.pt")
loaded = torch.load("checkpoint.pt", weights_only=False)
print(loaded["args"], list(loaded["model"]))
torch.save(Model(), "model.pt")
x = torch.ones(1, 2)
print(tuple(torch.load("model.pt", weights_only=False)(x).shape))
torch.save(Other(), "other.pt")
for allowed in ([], [Model, torch.nn.Linear]):
    for file in ("model.pt", "other.pt"):
        try:
            with torch.serialization.safe_globals(allowed):
                print(tuple(torch.load(file)(x).shape))
        except Exception as error:
            print("refused", "Other" in str(error))
"""


def test_whole_objects_are_saved_as_in_pytorch(tmp_path):
    printed = {}
    for way, words in WAYS.items():
        (tmp_path / "save.py").write_text(SAVING)
        done = gt_run(*words, "save.py", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        printed[way] = done.stdout.splitlines()
    lines = ["Namespace(lr=0.1) ['weight', 'bias']", "(1, 1)"]
    assert printed["front end"] == [
        *lines, "refused False", "refused True", "(1, 1)", "refused True",
    ]  # fmt: skip
    # Without a name that is allowed the file is refused whole.
    assert printed["natively"] == [
        *lines, "refused False", "refused False", "(1, 1)", "refused True",
    ]  # fmt: skip


def test_pytorch_that_is_loaded_is_not_replaced():
    with pytest.raises(RuntimeError, match="PyTorch is loaded in this process already"):
        torch_imports.install()
    assert sys.modules["torch"] is torch


# ---- the torch front end ----

DEVICES = """
import pickle
import threading
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

assert torch.__name__ == "torch"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(3, 4)
model = torch.nn.Linear(4, 2)

class Squares(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.tensor(float(i)) + torch.from_numpy(np.ones(1)), {"a": [torch.ones(1)]}

class Held(Dataset):
    def __init__(self):
        self.rows = torch.ones(2, 3)

    def __len__(self):
        return 2

    def __getitem__(self, i):
        row = self.rows[i].numpy()
        assert type(row) is type(np.asarray(self.rows[i])) is np.ndarray
        return torch.FloatTensor(row), row, self.rows[i].cpu()

class Old(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.FloatTensor([1.0, 2.0]))

made = [
    x, x.to(device), x.to("cuda:0"), x.to(torch.device("cpu"), torch.float64), x.cpu(), x.cuda(0),
    x.to(device=device), x.to(torch.ones(1)), x.type_as(torch.ones(1, dtype=torch.float64)),
    torch.ones(2, device="cuda"), torch.zeros(2, device=device), torch.empty(2, device=0),
    torch.tensor([1, 2]), torch.tensor([1.0], device="cpu"), torch.as_tensor(np.ones(3)),
    torch.from_numpy(np.ones(2)), torch.arange(3), torch.full((2,), 1.0), torch.eye(2),
    torch.zeros_like(x), torch.zeros_like(x, device="cpu"), x.new_zeros(2), x.pin_memory(),
    x.new_ones(2, device="cpu"), torch.randint(0, 3, (2,)), torch.randperm(4),
    torch.randn(2, generator=torch.Generator().manual_seed(1)), torch.hann_window(4),
    model.weight, model.to(device).weight, model.cuda().weight, model.cpu().bias, Old().w,
    torch.nn.Embedding(3, 2).weight, torch.nn.BatchNorm1d(2).running_mean, model(x),
    torch.FloatTensor([1.0, 2, 3, 4]) * x, x * torch.FloatTensor([1.0, 2, 3, 4]),
    torch.FloatTensor([1.0]), torch.FloatTensor(np.ones(2)), torch.FloatTensor(2, 3),
    torch.FloatTensor(x), torch.FloatTensor([x[0, 0], x[1, 1]]), torch.FloatTensor(),
    torch.Tensor([1.0]), torch.Tensor(2, 3), torch.Tensor(x), torch.cuda.FloatTensor([1.0]),
    torch.LongTensor([1]), torch.autograd.Variable(torch.ByteTensor([1])), torch.BoolTensor([True]),
    torch.arange(3).type(torch.FloatTensor), x.type(torch.int64), x.type("torch.LongTensor"),
    x.type("torch.cuda.DoubleTensor"), x.type(torch.cuda.LongTensor), x.new(2, 3), x.new([1]),
    torch.nn.Parameter(torch.FloatTensor(2)), pickle.loads(pickle.dumps({"x": x}))["x"],
    torch.nn.RNN(1, 2)(torch.FloatTensor([[1.0]]), torch.zeros(1, 2))[0],
]
assert x.type(torch.LongTensor).dtype == x.type("torch.cuda.LongTensor").dtype == torch.int64
assert isinstance(x, torch.FloatTensor) and not isinstance(x, (torch.LongTensor, torch.ByteTensor))
assert isinstance(torch.Tensor([1]), torch.Tensor) and repr(torch.FloatTensor).count("FloatTensor")
torch.set_default_tensor_type("torch.cuda.DoubleTensor")
assert torch.ones(1).dtype == torch.float64
torch.set_default_tensor_type(torch.FloatTensor)
assert torch.ones(1).dtype == torch.float32
model(x).sum().backward()
torch.optim.Adam(model.parameters(), 0.1).step()
made += [model.weight.grad, model.weight]
for workers in (0, 1):
    made += next(iter(DataLoader(TensorDataset(x, x), 3, num_workers=workers, pin_memory=True)))
    first, second = next(iter(DataLoader(Squares(), 2, shuffle=True, num_workers=workers)))
    made += [first, second["a"][0]]
    made += next(iter(DataLoader(Held(), 2, num_workers=workers)))
torch.save({"model": model.state_dict(), "x": x}, "saved.pt")
for place in (None, "cpu", device, "cuda:0"):
    loaded = torch.load("saved.pt", map_location=place)
    made += [loaded["x"], loaded["model"]["weight"]]
assert model.load_state_dict(loaded["model"])
wrong = [(i, str(tensor.device)) for i, tensor in enumerate(made) if tensor.device.type != "mux"]
assert not wrong, wrong
assert torch.ones(1, device="meta").is_meta

assert type(x.numpy()) is type(np.asarray(x)) is np.ndarray
assert x.numpy().tolist() == x.tolist() == x.cpu().numpy().tolist()
assert f"{x.sum():.3f}" == f"{x.sum().item():.3f}"
try:
    torch.ones(1, requires_grad=True).numpy()
except RuntimeError as error:
    assert "Can't call numpy() on Tensor that requires grad" in str(error)
hosts = []
thread = threading.Thread(target=lambda: hosts.extend([torch.ones(4), torch.ones(())]))
thread.start()
thread.join()
for host in hosts:
    try:
        host.add_(x[0] if host.ndim else x.sum())
    except RuntimeError as error:
        assert "Expected all tensors to be on the same device" in str(error)
    else:
        raise AssertionError("what the host holds was not written")
print("all on mux")
"""


def test_b18_whatever_device_a_program_says_it_is_on_mux(tmp_path):
    (tmp_path / "devices.py").write_text(DEVICES)
    done = gt_run("devices.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all on mux\n"
    way = f"gt run: through the torch front end: PyTorch {torch.__version__}, device mux"
    assert done.stderr.splitlines()[0] == way
    saved = torch.load(tmp_path / "saved.pt")  # by PyTorch alone
    assert {str(x.device) for x in [saved["x"], *saved["model"].values()]} == {"cpu"}


# ---- options ----


def test_b18_options_are_the_variables_of_gt(tmp_path):
    (tmp_path / "layout.yaml").write_text("stage: {shard: {axis: 0, workers: [0, 1]}}\n")
    (tmp_path / "elsewhere").mkdir()
    text = """
    import os, sys
    os.chdir("elsewhere")
    import torch, gt
    with gt.signal.context("stage"):
        x = torch.ones(4)
    print(x.layout, torch.distributed.get_world_size(), sys.argv)
    """
    printed = natively(tmp_path, text, "--layout", "layout.yaml", "--workers", "2")
    assert printed == "shard(0)@[0,1] 2 ['program.py']\n"


def test_b18_a_program_runs_on_a_dispatcher_that_is_there(tmp_path):
    text = "import torch; print(torch.distributed.get_world_size(), torch.ones(2).sum().item())"
    with Cluster(2) as cluster:
        printed = natively(tmp_path, text, "--workers", "2", "--connect", cluster.address)
    assert printed == "2 2.0\n"


MISTAKES = {
    "": "one program, a file or -m MODULE, is to be named",
    "--native -m": "argument -m: expected one argument",
    "--native --workers 0 x.py": "0 is not 1 or more",
    "--nativ x.py": "unrecognized arguments: --nativ",
    "--native --layout nowhere.yaml x.py": "nowhere.yaml",
    "--native --layout wrong.yaml x.py": "wrong.yaml:1:",
    "--native --connect 127.0.0.1:1 x.py": "127.0.0.1:1",
    "--native --connect nowhere x.py": "nowhere",
}


def test_mistakes_of_the_command_line_are_one_line(tmp_path):
    (tmp_path / "x.py").write_text("print('it ran')")
    (tmp_path / "wrong.yaml").write_text("a: {shrd: {}}\n")
    for words, text in MISTAKES.items():
        done = gt_run(*words.split(), folder=tmp_path)
        assert text in done.stderr.splitlines()[-1], (words, done.stderr)
        assert done.returncode in {1, 2}
        assert done.stdout == ""


@pytest.mark.parametrize(("words", "expected"), [
    ("train.py", ("train.py", "")),
    ("train.py --native -m x", ("train.py", "--native -m x")),
    ("--native train.py -- -x", ("--native train.py", "-- -x")),
    ("--workers 2 train.py --workers 3", ("--workers 2 train.py", "--workers 3")),
    ("--workers=2 train.py", ("--workers=2 train.py", "")),
    ("--native -m pkg.train --lr 1", ("--native -m pkg.train", "--lr 1")),
    ("-mpkg --native", ("-mpkg", "--native")),
    ("-- -odd.py -m", ("-- -odd.py", "-m")),
    ("--native", ("--native", "")),
    ("", ("", "")),
])  # fmt: skip
def test_words_behind_the_program_are_the_programs(words, expected):
    own, arguments = command.split(words.split())
    assert (" ".join(own), " ".join(arguments)) == expected


# ---- as `python` runs it ----

STATE = """
import __main__, os, sys
import beside
print(sys.argv, os.path.relpath(sys.path[0]), __name__, __package__, __spec__ and __spec__.name)
print(os.path.relpath(__file__), os.path.relpath(sys.argv[0]), __main__.__dict__ is globals())
print(sorted(name for name in globals() if name.startswith("__")), __doc__, __builtins__)
print(type(__loader__).__name__, beside.x, os.getcwd(), sys.modules["__main__"] is __main__)
"""
# The end of a program: a status, and what is on standard error.
ENDS = {
    "returns": "print(1)",
    "a status": "import sys; sys.exit(3)",
    "a text": "import sys; sys.exit('no data')",
    "no status": "raise SystemExit",
    "raises": "def f(x):\n    return 1 / x\n\nf(0)\n",
    "a chain": "try:\n    {}['x']\nexcept KeyError as e:\n    raise ValueError('y') from e",
    "a group": "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
    "its own": "class Mine(Exception):\n    pass\nraise Mine('x')",
    "syntax": "x = 1\ny = = 2\n",
    "encoding": "# coding: latin-1\nprint(len('\xe9'))",
    "a module absent": "import nowhere_at_all",
    "os error": "open('/nowhere/at/all')",
    "a hook": "import sys\nsys.excepthook = lambda k, v, t: print(k, v, t.tb_lineno)\n1 / 0",
    "at exit": "import atexit\natexit.register(print, 'end')\n1 / 0",
    "a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "interrupted": "import sys\nsys.stdout.write('x'); raise KeyboardInterrupt",
    "os._exit": "import os\nos._exit(7)",
    "flags": "assert False, 'not under -O'",
    "warnings": "import warnings\nwarnings.warn('careful')",
    "standard input": "print(input())",
    "future": "from __future__ import annotations\nx: nothing = 1\nprint(__annotations__)",
    "a pickle": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__module__)",
    "a dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\nprint(A(1))",
    "source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f), inspect.getfile(f)[-6:])",
}


def outcome(done):
    errors = re.sub(r"0x[0-9a-f]+|Thread-\d+", "…", NATIVELY.sub("", done.stderr))
    return done.returncode, done.stdout, errors


@pytest.fixture
def programs(tmp_path):
    """A script, a module, a package with a `__main__`, a folder and a zip file that have one."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "folder").mkdir()
    for place in ("scripts/train.py", "module.py", "package/__main__.py", "folder/__main__.py"):
        (tmp_path / place).write_text(STATE)
        (tmp_path / place).with_name("beside.py").write_text("x = 5\n")
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "scripts" / "train.py")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", STATE)
        archive.writestr("beside.py", "x = 6\n")
    return tmp_path


FORMS = [
    "scripts/train.py", "./scripts/../scripts/train.py", "scripts/train.py --workers 3 -m x --",
    "scripts/train.py --native", "link.py", "-m module", "-m package a -b", "-m package.__main__",
    "-m scripts.train", "folder", "archive.zip 1", "nowhere.py", "-m nowhere", "-m package.nowhere",
    "-m nowhere.at.all", "-mmodule 1", "scripts",
]  # fmt: skip


def test_b18_a_program_is_what_it_is_with_python(programs):
    for form in FORMS:
        words = form.split()
        expected = python(*words, folder=programs)
        got = gt_run("--native", *words, folder=programs)
        assert (form, *outcome(got)[:2]) == (form, *outcome(expected)[:2]), got.stderr
        if expected.returncode:
            said = expected.stderr.rpartition("python: ")[2].split(": [Errno")[0]
            said = said.removeprefix(f"{sys.executable}: ")
            assert said.strip().split(" (")[0] in got.stderr, (form, expected.stderr, got.stderr)


def test_b18_a_program_ends_as_it_does_with_python(tmp_path):
    for name, text in ENDS.items():
        coding = "latin-1" if "latin" in text else "utf-8"
        (tmp_path / "train.py").write_text(text, encoding=coding)
        pair = [
            outcome(
                subprocess.run(
                    [sys.executable, "-W", "default::UserWarning", *words, "train.py"],
                    cwd=tmp_path, input="read\n", capture_output=True, text=True, timeout=50,
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                )
            )
            for words in ((), ("-c", "import sys, gt.tools.cli as c; sys.exit(c.main())", "run"))
            for words in [(*words, "--native") if words else words]
        ]  # fmt: skip
        assert (name, pair[1]) == (name, pair[0])
