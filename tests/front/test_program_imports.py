"""Modules and names beside the surface that public programs import, and what they do in torch."""

import importlib
import multiprocessing
import signal
import subprocess
import sys
import textwrap

import pytest
import spawned
import torch
import torch._inductor.config
import torch._utils
import torch.distributed.optim
import torch.multiprocessing

import gt
import gt._utils
from gt import nn

IMPORTS = [
    "import m._utils",
    "from m._utils import _flatten_dense_tensors, _unflatten_dense_tensors, _take_tensors",
    "from m._utils import _reorder_tensors_as, _get_device_index, _import_dotted_name",
    "import m.distributed.nn as dist_nn; dist_nn.all_reduce, dist_nn.all_gather",
    "from m.distributed.nn.functional import all_reduce, broadcast, reduce_scatter",
    "from m.distributed.optim import ZeroRedundancyOptimizer",
    "import m.multiprocessing as mp; mp.spawn, mp.Process, mp.Queue, mp.set_start_method",
    "from m.multiprocessing import Pool, cpu_count, set_sharing_strategy, ProcessContext",
    "from m.multiprocessing import ProcessExitedException, ProcessRaisedException",
    "import m._inductor.config as config; config.coordinate_descent_tuning = True",
    "from m._inductor import config; config.triton.unique_kernel_names = True",
    "m._inductor.config.cpp.threads = 1",
    "from m.utils.cpp_extension import load, load_inline, CUDAExtension, BuildExtension, CUDA_HOME",
    "m.utils.cpp_extension.is_ninja_available()",
    "from m.utils.checkpoint import get_device_states, set_device_states",
    "from m import qr, matrix_rank, symeig, solve, lstsq, eig, cholesky",
    "from m.nn.modules.linear import NonDynamicallyQuantizableLinear, Linear",
]


@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_works_as_in_torch(line):
    for name, m in (("torch", torch), ("gt", gt)):
        exec(line.replace("m.", f"{name}.", 1).replace("from m ", f"from {name} "), {name: m})


def outcome(function):
    try:
        return function()
    except (RuntimeError, ValueError, TypeError) as error:
        kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
        return kind, str(error).split(";")[0]


# ---- _utils ----

SHAPES = [[(2,)], [(2, 3), (4,)], [(2,), (0, 3), (2, 2)], [(), (1,)], []]


def tensors(m, shapes, dtype="float32"):
    return [m.arange(24).to(getattr(m, dtype))[: m.Size(s).numel()].reshape(s) for s in shapes]


@pytest.mark.parametrize("shapes", SHAPES)
def test_flat_and_back(shapes):
    def run(m):
        flat = m._utils._flatten_dense_tensors(tensors(m, shapes))
        parts = m._utils._unflatten_dense_tensors(flat, tensors(m, shapes))
        flat.mul_(2)  # the parts are views
        return flat.tolist(), [(tuple(part.shape), part.tolist()) for part in parts]

    assert outcome(lambda: run(gt)) == outcome(lambda: run(torch))


def test_the_flat_form_of_one_tensor_is_a_view_of_it():
    for m in (gt, torch):
        x = m.ones(2, 2)
        m._utils._flatten_dense_tensors([x]).fill_(3)
        assert x.tolist() == [[3, 3], [3, 3]]


def test_a_flat_tensor_that_is_too_short():
    def run(m):
        return m._utils._unflatten_dense_tensors(m.ones(3), [m.ones(4)])

    assert outcome(lambda: run(gt)) == outcome(lambda: run(torch))


@pytest.mark.parametrize("limit", [0, 8, 16, 1000])
def test_lists_within_a_limit_and_their_order(limit):
    def run(m):
        shapes = [(2,), (3,), (1,), (4,), (2,)]
        kinds = ["float32", "int64", "float32", "int64", "float32"]
        listed = [tensors(m, [s], k)[0] for s, k in zip(shapes, kinds, strict=True)]
        taken = list(m._utils._take_tensors(listed, limit))
        back = m._utils._reorder_tensors_as([x for part in taken for x in part], listed)
        return [[x.shape[0] for x in part] for part in taken], [x.shape[0] for x in back]

    assert run(gt) == run(torch)


@pytest.mark.parametrize("given", [
    "3", "None", "'cuda:1'", "'cpu'", "'cpu', False, True", "'cuda'", "1.5",
    "m.device('cuda', 2)", "m.device('cpu')",
])  # fmt: skip
def test_numbers_of_devices(given):
    def run(m):
        return outcome(lambda: eval(f"m._utils._get_device_index({given})", {"m": m}))

    assert run(gt) == run(torch)


def test_without_a_device_there_is_no_number():
    # PyTorch's is that of its accelerator, which is `mux` once gt.torch is imported.
    assert gt._utils._get_device_index(None, True) is None


def test_a_dotted_name_and_sizes():
    assert gt._utils._import_dotted_name("os.path.join") is importlib.import_module("os").path.join
    kinds = ["float32", "float64", "int8", "bool", "complex128", "bfloat16"]
    sizes = [gt._utils._element_size(getattr(gt, kind)) for kind in kinds]
    assert sizes == [torch._utils._element_size(getattr(torch, kind)) for kind in kinds]


# ---- functions that PyTorch removed ----


@pytest.mark.parametrize("call", [
    "m.qr(x)", "m.qr(x, some=False)", "m.qr(input=x)", "m.cholesky(x)", "m.solve(x, x)",
    "m.cholesky(x, upper=True)", "m.eig(x)", "m.eig(x, True)", "m.lstsq(x, x)", "m.lstsq(x, A=x)",
    "m.symeig(x)", "m.symeig(x, eigenvectors=True)", "m.matrix_rank(x)",
])  # fmt: skip
def test_a_removed_function_says_what_is_there(call):
    def run(m):
        return outcome(lambda: eval(call, {"m": m, "x": m.eye(2)}))

    assert run(gt) == run(torch)
    assert run(gt)[0] is RuntimeError


# ---- settings, extensions ----


def test_settings_are_kept_and_patched():
    config = importlib.import_module("gt._inductor.config")
    config.max_autotune = True
    with config.patch({"max_autotune": False, "triton.cudagraphs": True}):
        assert not config.max_autotune
        assert config.triton.cudagraphs
    assert config.max_autotune
    assert not hasattr(config.triton, "cudagraphs")

    @config.patch("max_autotune", "within")
    def read():
        return config.max_autotune

    assert (read(), config.max_autotune) == ("within", True)
    del config.max_autotune


@pytest.mark.parametrize("call", [
    "load('kernels', ['a.cpp'], verbose=True)", "load_inline('k', cpp_sources='')",
    "CppExtension('k', ['a.cpp'])", "CUDAExtension(name='k', sources=['a.cu'])", "BuildExtension()",
])  # fmt: skip
def test_an_extension_says_why_not(call):
    with pytest.raises(NotImplementedError, match=r"compiled against PyTorch's C\+\+ tensors"):
        eval(call, vars(importlib.import_module("gt.utils.cpp_extension")))


def test_device_states_bring_the_same_numbers_again():
    from gt.utils.checkpoint import get_device_states, set_device_states

    assert get_device_states(1, "x", [2]) == ([], [])
    for given in ((gt.ones(1),), ({"x": [gt.ones(1)]},)):
        kept = get_device_states(*given)
        first = gt.rand(3).tolist()
        set_device_states(*kept)
        assert gt.rand(3).tolist() == first


# ---- classes ----


def test_an_attention_projects_by_the_class_of_pytorch():
    shown = [repr(m.nn.TransformerEncoderLayer(4, 2)) for m in (gt, torch)]
    assert shown[0] == shown[1]
    projection = nn.MultiheadAttention(4, 2).out_proj
    assert type(projection) is nn.modules.linear.NonDynamicallyQuantizableLinear
    assert isinstance(projection, nn.Linear)


@pytest.mark.parametrize(("name", "options"), [
    ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.1}), ("AdamW", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1}), ("RMSprop", {"lr": 0.1}),
])  # fmt: skip
def test_a_zero_redundancy_optimizer_steps_as_the_one_it_is_of(name, options):
    def run(wrapped):
        model = nn.Linear(3, 2)
        model.load_state_dict({"weight": gt.ones(2, 3), "bias": gt.zeros(2)})
        made = getattr(gt.optim, name)
        optimizer = (
            gt.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), made, **options)
            if wrapped
            else made(model.parameters(), **options)
        )
        schedule = gt.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            model(gt.arange(6.0).reshape(2, 3)).square().sum().backward()
            optimizer.step()
            schedule.step()
            optimizer.load_state_dict(optimizer.state_dict())
        if wrapped:
            optimizer.consolidate_state_dict(to=0)
        states = {
            at: {
                key: getattr(value, "tolist", lambda value=value: value)()
                for key, value in entry.items()
            }
            for at, entry in optimizer.state_dict()["state"].items()
        }
        return [p.tolist() for p in model.parameters()], states

    assert run(True) == run(False)


# ---- collectives ----


def test_gradients_pass_through_collectives():
    x = gt.distribute(gt.arange(4.0), dim=0).requires_grad_()
    for function in (
        "all_gather",
        "all_reduce",
        "broadcast",
        "reduce_scatter",
        "scatter",
        "gather",
    ):
        x.grad = None
        (getattr(gt.distributed.nn, function)(x) * x).sum().backward()
        assert x.grad.tolist() == [0, 2, 4, 6], function
    assert gt.distributed.nn.functional.all_reduce is gt.distributed.all_reduce


# ---- processes ----


def test_processes_run_a_function_each_and_tensors_go_by_value():
    queue = multiprocessing.get_context("spawn").Queue()
    gt.multiprocessing.spawn(spawned.double, args=(queue, gt.ones(2)), nprocs=2)
    assert sorted(queue.get(timeout=20) for _ in range(2)) == [(0, [2, 2]), (1, [2, 2])]


@pytest.mark.parametrize("code", ["raise", 3, signal.SIGKILL])
def test_a_process_that_fails_is_the_parents_error(code):
    told = []
    for m, method in ((gt, "spawn"), (torch, "fork")):  # which imports no torch again
        start = m.multiprocessing.start_processes
        context = start(spawned.fail, (code,), nprocs=2, join=False, start_method=method)
        assert len(context.pids()) == 2
        error = failure(m, context)
        lines = str(error).strip().splitlines()
        told.append((type(error).__name__, error.error_index, lines[0], lines[-1]))
        told[-1] += (getattr(error, "exit_code", None), getattr(error, "signal_name", None))
    assert told[0] == told[1]


def failure(m, context):
    """Error that joining the processes raises."""
    try:
        while not context.join():
            pass
    except (
        m.multiprocessing.ProcessRaisedException,
        m.multiprocessing.ProcessExitedException,
    ) as e:
        return e
    raise AssertionError("no process failed")


def test_several_processes_are_no_group():
    with pytest.raises(
        gt.multiprocessing.ProcessRaisedException, match="one program speaks for all"
    ):
        gt.multiprocessing.spawn(spawned.join_group, nprocs=2)


def test_strategies_of_sharing():
    for m in (gt, torch):
        assert {"file_system", "file_descriptor"} >= {m.multiprocessing.get_sharing_strategy()}
    gt.multiprocessing.set_sharing_strategy("file_system")
    assert gt.multiprocessing.get_sharing_strategy() == "file_system"
    with pytest.raises(ValueError, match="sharing_strategy"):
        gt.multiprocessing.set_sharing_strategy("by post")
    gt.multiprocessing.set_sharing_strategy("file_descriptor")
    assert set(multiprocessing.__all__) <= set(gt.multiprocessing.__all__)


def test_none_of_them_loads_with_gt():
    names = ["_utils", "_inductor", "multiprocessing", "distributed.nn", "utils.cpp_extension"]
    code = f"""
    import sys, gt
    assert not [name for name in {names} if f"gt.{{name}}" in sys.modules]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=50)
    assert done.returncode == 0
