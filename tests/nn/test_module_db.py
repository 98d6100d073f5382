"""Every entry of PyTorch's module_db: values and gradients with the same parameters, in training
and evaluation; no entry is left out without a reason that stands here.
"""

import types
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")
from harness.convert import (  # noqa: E402
    convert,
    from_gt,
    quietly,
    tensors,
    to_gt,
)
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db  # noqa: E402
from torch_session import torch_workers  # noqa: E402

import gt  # noqa: E402

CLOSE = {"rtol": 1e-7, "atol": 1e-8}
# Entries that are not driven, each with its reason.
LEFT_OUT: dict[str, str] = {}
ENTRIES = [info for info in module_db if info.name not in LEFT_OUT]
DRIVEN_MIN = 105


@pytest.fixture(scope="module", autouse=True)
def torch_worker_on_the_cpu() -> Iterator[None]:
    """One worker for all entries."""
    with torch_workers(1):
        yield


def inputs(info: ModuleInfo, *, training: bool) -> list[ModuleInput]:
    """The entry's samples in float64; their tensors require gradients where they can."""
    torch.manual_seed(0)
    made = info.module_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
    )
    return quietly(lambda: list(made))


def modules(info: ModuleInfo, sample: ModuleInput, *, training: bool) -> tuple[object, object]:
    """PyTorch's module, and GT's with the same parameters and buffers."""
    given = sample.constructor_input
    torch.manual_seed(1)
    theirs = quietly(lambda: info.module_cls(*given.args, **given.kwargs)).double()
    if info.is_lazy:  # its first call says the parameters' shapes
        forward = sample.forward_input
        quietly(lambda: theirs(*forward.args, **forward.kwargs))
    theirs.train(training)
    ours = twin(info.module_cls, given.args, given.kwargs).double()
    ours.train(training)
    ours.load_state_dict(theirs.state_dict())
    round_trip(ours, theirs)
    return ours, theirs


def round_trip(ours: gt.nn.Module, theirs: torch.nn.Module) -> None:
    """State saved by GT's module has PyTorch's names, and PyTorch's module loads it."""
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    saved = ours.state_dict()
    assert list(saved) == list(before)
    theirs.load_state_dict({name: value * 0 for name, value in before.items()})
    theirs.load_state_dict({name: from_gt(value) for name, value in saved.items()})
    for name, value in theirs.state_dict().items():
        assert value.dtype == before[name].dtype, name
        assert torch.equal(value, before[name]), name


def twin(kind: type, args: tuple[object, ...], kwargs: dict[str, object]) -> gt.nn.Module:
    """GT's module of the same name and arguments."""
    build: Callable[..., gt.nn.Module] = getattr(gt.nn, kind.__name__)
    return build(*(argument(x) for x in args), **{k: argument(x) for k, x in kwargs.items()})


def argument(value: object) -> object:
    """GT's counterpart of an argument."""
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return encoder_layer(value)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        return getattr(gt.nn.functional, value.__name__)
    return convert(value, to_gt)


def encoder_layer(layer: torch.nn.TransformerEncoderLayer) -> gt.nn.TransformerEncoderLayer:
    """A layer of the same sizes, whose parameters are still to be copied."""
    return gt.nn.TransformerEncoderLayer(
        layer.linear1.in_features,
        layer.self_attn.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        argument(layer.activation),
        layer.norm1.eps,
        layer.self_attn.batch_first,
        layer.norm_first,
        layer.linear1.bias is not None,
    )


def run(module: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
    """The tensors of what a call returns."""
    return tensors(quietly(lambda: module(*args, **kwargs)), (torch.Tensor, gt.Tensor))


def leaves(value: object) -> list[torch.Tensor]:
    return [x for x in tensors(value, torch.Tensor) if x.requires_grad]


def check(info: ModuleInfo, sample: ModuleInput, *, training: bool) -> None:
    """Outputs, gradients of inputs and parameters, and buffers afterwards must equal PyTorch's."""
    ours, theirs = modules(info, sample, training=training)
    args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
    wanted = leaves([list(args), kwargs])
    twins = {id(x): to_gt(x) for x in wanted}
    tensor = lambda x: twins.get(id(x)) if id(x) in twins else to_gt(x)  # noqa: E731
    torch.manual_seed(2)
    expected = run(theirs, args, kwargs)
    mine = run(
        ours,
        tuple(convert(x, tensor) for x in args),
        {name: convert(x, tensor) for name, x in kwargs.items()},
    )
    assert len(mine) == len(expected)
    for x, other in zip(mine, expected, strict=True):
        same(x, other)
    differentiable = [x for x in expected if x.requires_grad]
    if not differentiable:
        return
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in differentiable]
    parameters = list(theirs.parameters())
    gradients = torch.autograd.grad(
        differentiable, [*wanted, *parameters], weights, allow_unused=True
    )
    leaves_of_ours = [*(twins[id(x)] for x in wanted), *ours.parameters()]
    found = gt._core.grad(
        [x for x in mine if x.requires_grad],
        list(map(to_gt, weights)),
        leaves_of_ours,
        False,
        False,
    )
    for x, other in zip(found, gradients, strict=True):
        if x is None or other is None:
            left = other if x is None else from_gt(x)
            assert left is None or not left.any(), "one is none, the other not zero"
            continue
        same(x, other)
    for (name, buffer), (other_name, other) in zip(
        ours.named_buffers(), theirs.named_buffers(), strict=True
    ):
        assert name == other_name
        same(buffer, other)


def same(ours: gt.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(from_gt(ours.detach()), theirs.detach(), equal_nan=True, **CLOSE)


def name_of(info: ModuleInfo) -> str:
    return info.name.removeprefix("nn.")


@pytest.mark.parametrize("info", ENTRIES, ids=name_of)
def test_module_is_as_in_pytorch(info: ModuleInfo) -> None:
    ran = 0
    for training in (True, False) if info.train_and_eval_differ else (True,):
        for number, sample in enumerate(inputs(info, training=training)):
            where = f"sample {number} {sample.desc} training={training}"
            try:
                check(info, sample, training=training)
            except Exception as error:
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            ran += 1
    assert ran, "no sample ran"


def test_enough_entries_are_driven() -> None:
    assert set(LEFT_OUT) <= {info.name for info in module_db}
    assert len(ENTRIES) >= DRIVEN_MIN, f"{len(ENTRIES)} of {len(module_db)}"
