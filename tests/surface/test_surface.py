"""Public names: keywords are PyTorch's, everything has a docstring, dir() shows no more.

PyTorch's keywords come from the signatures of its Python functions, else from the schemas of its
dispatcher, with the numpy names that its parser accepts for `dim` and `keepdim`.
"""

import ast
import importlib
import inspect
import itertools
import math
import pathlib
import re
import types
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import torch

import gt
from gt import _core

NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}
SPACES = {
    "Tensor": (gt.Tensor, torch.Tensor),
    "gt": (gt, torch),
    "functional": (gt.nn.functional, torch.nn.functional),
}
DISTRIBUTIONS = ("", ".constraints", ".kl", ".transforms", ".utils")
MODULES = [
    "gt", "gt.autograd", "gt.autograd.function", "gt.autograd.functional",
    "gt.autograd.graph", "gt.autograd.anomaly_mode", "gt.autograd.forward_ad",
    "gt.autograd.grad_mode", "gt.cuda", "gt.debug", "gt.distributed", "gt.dnn", "gt.errors",
    "gt.fft", "gt.func", "gt.functional",
    "gt.linalg", "gt.masked", "gt.nn",
    "gt.nn.functional", "gt.nn.init", "gt.nn.utils", "gt.optim", "gt.optim.lr_scheduler",
    "gt.random", "gt.signal", "gt.signal.windows", "gt.special", "gt.utils", "gt.utils.data",
    "gt.backends", "gt.torch_version", "gt.utils.checkpoint", "gt.version",
    *(f"gt.nn.modules.{path}" for path in (*gt.nn.modules.PATHS, "utils")),
    "gt.amp", "gt.cpu", "gt.cpu.amp", "gt.cuda.amp", "gt.cuda.memory",
    "gt.cuda.streams", "gt.pipeline", "gt.profiler", "gt.sparse",
    "gt.accelerator", "gt.compiler", "gt.jit", "gt.mps", "gt.nn.modules", "gt.ops",
    "gt.data", "gt.nn.utils.fusion", "gt.nn.utils.memory_format", "gt.nn.utils.parametrizations",
    "gt.nn.utils.parametrize", "gt.nn.utils.prune", "gt.nn.utils.stateless", "gt.nn.utils.rnn",
    *(f"gt.distributions{path}" for path in DISTRIBUTIONS), "gt.onnx", "gt.optim.swa_utils",
    "gt.return_types", "gt.testing", "gt.utils.dlpack", "gt.utils.tensorboard", "gt.xpu",
    "gt._inductor", "gt._inductor.config", "gt._utils", "gt.distributed.nn", "gt.distributed.optim",
    "gt.multiprocessing", "gt.utils.cpp_extension",
]  # fmt: skip

CLASSES = {
    "nn": (gt.nn, torch.nn),
    "optim": (gt.optim, torch.optim),
    "lr_scheduler": (gt.optim.lr_scheduler, torch.optim.lr_scheduler),
    "utils.data": (gt.utils.data, torch.utils.data),
    "Generator": (gt.Generator, torch.Generator),
}
METHODS = {
    **{name: (getattr(gt.nn, name), getattr(torch.nn, name)) for name in (
        "Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict",
        "Embedding", "MultiheadAttention", "LSTM", "TransformerEncoderLayer",
    )},
    "Optimizer": (gt.optim.Optimizer, torch.optim.Optimizer),
    "LRScheduler": (gt.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.LRScheduler),
    "init": (gt.nn.init, torch.nn.init),
    "utils": (gt.nn.utils, torch.nn.utils),
    "autograd": (gt.autograd, torch.autograd),
    "random": (gt.random, torch.random),
}  # fmt: skip

# Keywords that PyTorch takes and GT does not, with the reason.
NOT_TAKEN = {
    "out": "a result is a value of its own, D7",
    "out_dtype": "CUDA only in PyTorch",
    "sparse_grad": "there are no sparse tensors",
    "size_average": "deprecated since PyTorch 0.4 in favour of `reduction`",
    "reduce": "deprecated since PyTorch 0.4 in favour of `reduction`; scatter has it",
    "cudnn_enable": "of a kernel that GT does not call",
    "from": "a reserved word: nobody can type it",
    "implicit": "PyTorch's own calls only",
    "pickle_module": "files hold no code, D13",
    "pickle_protocol": "files hold no code, D13",
}
NOT_TAKEN_BY = {
    ("gt.result_type", "scalar"): "the other overloads' names of the same two places",
    ("gt.result_type", "scalar1"): "the other overloads' names of the same two places",
    ("gt.result_type", "scalar2"): "the other overloads' names of the same two places",
    ("gt.normal", "input"): "of another operator whose schema has the name",
    ("functional.elu_", "scale"): "of the kernel behind selu",
    ("functional.elu_", "input_scale"): "of the kernel behind selu",
}


def schemas() -> dict[str, set[str]]:
    """The parameters of every operator of PyTorch's dispatcher, over its overloads."""
    table: dict[str, set[str]] = defaultdict(set)
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.partition(".")
        arguments = torch._C._get_schema(name, overload).arguments
        if name.startswith("aten::") and "Dimname" not in str([x.type for x in arguments]):
            own = {x.name for x in arguments if not x.is_out}
            table[name.removeprefix("aten::")] |= own
    return table


SCHEMAS = schemas()


def keywords(function: object, name: str) -> set[str]:
    """Keywords of PyTorch's function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        own = SCHEMAS.get(name, set())
        return {"input" if x == "self" else x for x in own} | {
            NUMPY_NAMES[x] for x in own & NUMPY_NAMES.keys()
        }
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {x.name for x in parameters if x.kind in named}


def takes(function: Callable[..., object], given: tuple[object, ...], keyword: str) -> bool:
    """True where a call with that keyword passes the check of its arguments' names."""
    try:
        parameter = inspect.signature(function).parameters.get(keyword)
    except ValueError:
        parameter = None
    if parameter is not None and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    ):
        return True
    try:
        function(*given, **{keyword: object()})
    except TypeError as error:
        return "unexpected keyword" not in str(error)
    except Exception:  # noqa: BLE001 - it looked at the values
        return True
    return True


def shared(space: str) -> Iterator[tuple[str, Callable[..., object], set[str]]]:
    """Every function of both namespaces, and PyTorch's keywords of it."""
    ours, theirs = SPACES[space]
    for name in dir(ours):
        mine, other = getattr(ours, name, None), getattr(theirs, name, None)
        classes = inspect.isclass(mine) or inspect.isclass(other)
        if name.startswith("_") or classes or not callable(mine) or not callable(other):
            continue
        own = {x for x in keywords(other, name) if not x.startswith("_")}
        yield name, mine, own - {"self", "input"} if space == "Tensor" else own


@pytest.mark.parametrize("space", SPACES)
def test_keywords_are_those_of_pytorch(space: str) -> None:
    tensor = gt.ones(2, 2)
    missing = [
        f"{space}.{name}({keyword}=)"
        for name, function, own in shared(space)
        for keyword in sorted(own)
        if keyword not in NOT_TAKEN and (f"{space}.{name}", keyword) not in NOT_TAKEN_BY
        if not takes(function, () if keyword in ("input", "size") else (tensor,), keyword)
    ]
    assert not missing, missing


Parameters = list[inspect.Parameter]


def signatures() -> Iterator[tuple[str, Parameters, Parameters]]:
    """Each function, constructor and method of both libraries, with the parameters of both."""
    for space, (ours, theirs) in (CLASSES | METHODS).items():
        for name in dir(ours):
            mine, other = getattr(ours, name, None), getattr(theirs, name, None)
            kind = inspect.isclass if space in CLASSES else callable
            if name.startswith("_") or not kind(mine) or not callable(other):
                continue
            try:
                signatures_ = [inspect.signature(x).parameters for x in (mine, other)]
            except (TypeError, ValueError):
                continue
            variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            kinds = {x.kind for x in signatures_[0].values()}
            own, expected = (
                [x for x in signature.values() if x.kind not in variadic and x.name[:1] != "_"]
                for signature in signatures_
            )
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                yield f"{space}.{name}", own, expected


def test_classes_take_the_keywords_of_pytorch() -> None:
    missing = {
        (title, keyword.name)
        for title, own, expected in signatures()
        for keyword in expected
        if keyword.name not in {x.name for x in own}
    }
    assert not missing


def test_arguments_stand_in_the_order_of_pytorch() -> None:
    odd = []
    for title, *both in signatures():
        own, expected = (
            [x.name for x in one if x.kind is not inspect.Parameter.KEYWORD_ONLY] for one in both
        )
        if [x for x in own if x in expected] != [x for x in expected if x in own]:
            odd.append((title, own, expected))
    assert not odd, odd


def test_exceptions_are_still_needed() -> None:
    pairs = {(f"{s}.{name}", x) for s in SPACES for name, _, own in shared(s) for x in own}
    assert {x for _, x in pairs} >= NOT_TAKEN.keys()
    assert pairs >= NOT_TAKEN_BY.keys()


NUMPY_CALLS: list[Callable[..., object]] = [
    lambda m, x: x.sum(axis=1, keepdims=True),
    lambda m, x: [x.mean(axis=0), x.amax(axis=(0, 1)), x.argmin(axis=1, keepdims=True)],
    lambda m, x: [x.softmax(axis=-1), m.log_softmax(x, axis=0), x.logsumexp(axis=1, keepdims=True)],
    lambda m, x: [x.cumsum(axis=1), m.cumsum(x, axis=0), x.clone().cumsum_(axis=0)],
    lambda m, x: [x.var(axis=1, keepdims=True), m.std(x, axis=0), x.median(axis=1).values],
    lambda m, x: [x.select(axis=1, index=2), x.squeeze(axis=0), x.unsqueeze(axis=1)],
    lambda m, x: [m.cat([x, x], axis=1), m.stack([x, x], axis=2), *x.split(2, dim=1)],
    lambda m, x: [x.gather(axis=1, index=x.argsort(axis=1)), x.sort(axis=0).values],
    lambda m, x: [*x.split(split_size=3, dim=1), *m.split(x, split_size_or_sections=[1, 3], dim=1)],
    lambda m, x: [x.tile(dims=(2, 1)), x.swapaxes(axis0=0, axis1=1), x.view(size=(2, 6))],
    lambda m, x: [x.size(axis=1), x.stride(axis=0), m.rand(size=(2,)).shape[0]],
]


@pytest.mark.parametrize("call", NUMPY_CALLS, ids=range(len(NUMPY_CALLS)))
def test_numpy_names_mean_the_same(call: Callable[..., object]) -> None:
    rows = [[0.5, -1.0, 2.0, 0.0], [1.5, 3.0, -2.0, 4.0], [0.25, 7.0, -3.0, 5.0]]
    ours, theirs = (call(m, m.tensor(rows)) for m in (gt, torch))
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, list) else [(ours, theirs)]
    for mine, other in pairs:
        plain = [x.tolist() if hasattr(x, "tolist") else x for x in (mine, other)]
        assert torch.tensor(plain[0]).allclose(torch.tensor(plain[1]))


def test_a_required_dim_is_required_by_either_name() -> None:
    with pytest.raises(
        TypeError, match=r'cumsum\(\) missing 1 required positional arguments: "dim"'
    ):
        gt.ones(2).cumsum()


def public(space: object) -> list[str]:
    names = [name for name in dir(space) if not name.startswith("_")]
    return [name for name in names if callable(getattr(space, name, None))]


def test_everything_has_a_docstring() -> None:
    spaces = {name: importlib.import_module(name) for name in MODULES} | {"gt.Tensor": gt.Tensor}
    empty = [
        f"{title}.{name}"
        for title, space in spaces.items()
        for name in public(space)
        if not (inspect.getdoc(getattr(space, name)) or "").strip()
    ]
    assert not empty, empty


def test_help_tells_signature_and_meaning() -> None:
    text = gt.matmul.__doc__
    assert text.startswith("matmul(input, other)\n\nMatrix product")
    assert "keepdim=False" in gt.sum.__doc__
    assert _core.Function("f", gt.Tensor.matmul).__doc__.startswith("f(input, other)")


def test_stubs_have_docstrings() -> None:
    stub = pathlib.Path(gt.__file__).with_name("_core.pyi").read_text(encoding="utf-8")
    tensor = next(x for x in ast.parse(stub).body if getattr(x, "name", "") == "Tensor")
    functions = [x for x in tensor.body if isinstance(x, ast.FunctionDef)]
    properties = {
        x.name for x in functions if any("overload" not in ast.unparse(d) for d in x.decorator_list)
    }
    documented = {x.name for x in functions if ast.get_docstring(x)}
    names = {x.name for x in functions if not x.name.startswith("_")} - properties
    assert names <= documented, names - documented


@pytest.mark.parametrize("title", MODULES)
def test_dir_shows_what_users_type(title: str) -> None:
    """Nothing from the standard library or typing; no module that only holds what others show."""
    module = importlib.import_module(title)
    shown = dir(module)
    assert shown == sorted(shown, key=shown.index)
    for name in shown:
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            assert value.__name__ in {*MODULES, "gt.client"}, f"{title}.{name}"
        elif callable(value):
            assert value.__module__.split(".")[0] in ("gt", "builtins"), f"{title}.{name}"


def test_hidden_modules_can_be_imported() -> None:
    hidden = {"composite", "creation", "gradients", "printing", "serialization"}
    assert not hidden & set(dir(gt))
    for name in hidden:
        assert importlib.import_module(f"gt.{name}") is getattr(gt, name)


def test_grad_gives_zeros_for_what_is_not_used() -> None:
    gradients = []
    for library in (gt, torch):
        x, unused = (library.ones(2, requires_grad=True) for _ in range(2))
        grad = library.autograd.grad
        gradients.append(
            [one.tolist() for one in grad((x * x).sum(), [x, unused], materialize_grads=True)]
        )
        with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
            grad(x.sum(), x, allow_unused=False, materialize_grads=True)
    assert gradients[0] == gradients[1]


def test_init_draws_from_a_generator_of_its_own() -> None:
    before = gt.get_rng_state().tolist()
    first, second = (
        gt.nn.init.normal_(gt.empty(3, 2), generator=gt.Generator().manual_seed(5)).tolist()
        for _ in range(2)
    )
    assert first == second
    assert gt.get_rng_state().tolist() == before


def test_state_dict_adds_to_a_destination() -> None:
    entries = {"before": gt.ones(1)}
    assert gt.nn.Linear(2, 3).state_dict(destination=entries, prefix="a.") is entries
    assert list(entries) == ["before", "a.weight", "a.bias"]
    module = gt.nn.BatchNorm1d(3)
    assert module.get_buffer("running_mean") is module.running_mean
    with pytest.raises(AttributeError, match="`weight` is not a buffer"):
        module.get_buffer("weight")


BITS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
# The shape of a tensor and what is viewed of it.
BIT_VIEWS = [
    ((3, 8), lambda x: x),
    ((2, 3), lambda x: x),
    ((), lambda x: x),
    ((0, 8), lambda x: x),
    ((8, 4), lambda x: x.T),
    ((4, 16), lambda x: x[:, 1:9]),
    ((4, 16), lambda x: x[:, 8:]),
    ((4, 12), lambda x: x[:, ::2]),
    ((3, 9), lambda x: x[:, :8]),
    ((1, 8), lambda x: x.expand(3, 8)),
]


@pytest.mark.parametrize("source", [*BITS, "bool"])
def test_bits_as_another_dtype(source: str) -> None:
    """`x.view(dtype)` has PyTorch's values, shapes and errors."""
    for target, (shape, part) in itertools.product(BITS, BIT_VIEWS):
        values = (
            torch.arange(math.prod(shape)).reshape(shape).remainder(2 if source == "bool" else 99)
        )
        theirs = part(values.to(getattr(torch, source)))
        ours = part(gt.tensor(values.tolist(), dtype=getattr(gt, source)).reshape(shape))
        case = f"{source} {shape} as {target}"
        try:
            expected = theirs.view(getattr(torch, target))
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                ours.view(getattr(gt, target))
            continue
        viewed = ours.view(getattr(gt, target))
        assert tuple(viewed.shape) == tuple(expected.shape), case
        assert str(viewed.dtype) == f"gt.{target}", case
        assert str(viewed.tolist()) == str(expected.tolist()), case


def test_view_of_a_dtype() -> None:
    """Storage is shared with the tensor's own dtype; the bits as another one are a value."""
    x = gt.ones(2, 3)
    y = x.view(gt.float32)
    y += 1
    assert x.tolist() == [[2.0] * 3] * 2
    bits = x.requires_grad_().view(dtype=gt.int32)
    assert not bits.requires_grad
    assert bits.view(gt.float32).tolist() == x.tolist()


def test_a_wrong_first_argument_is_told_as_pytorch_tells_it() -> None:
    compared = 0
    for name, count in itertools.product(sorted(dir(gt)), range(1, 4)):
        ours, theirs = getattr(gt, name), getattr(torch, name, None)
        if not isinstance(ours, _core.Function) or theirs is None or name == "is_complex":
            continue
        texts = [_refusal(function, count) for function in (theirs, ours)]
        if "invalid combination" in texts[0] or "argument 'input'" in texts[0]:
            compared += 1
            assert texts[0].split(" - ")[0] == texts[1].split(" - ")[0], (name, count)
    assert compared > 300


def _refusal(function: Callable[..., object], count: int) -> str:
    try:
        function(*["x"] * count)
    except (TypeError, RuntimeError, ValueError, AttributeError) as error:
        return str(error)
    return ""
