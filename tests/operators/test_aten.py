"""Operators without a row: called by PyTorch's schemas, with its values, gradients and errors."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cluster import Cluster
from spread_session import workers

import gt
from gt import _core, errors
from gt.aten import binding, call, schemas
from gt.worker.pytorch import own as torch_own

SQUARE = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]


def both(values: object) -> tuple[gt.Tensor, torch.Tensor]:
    return (
        gt.tensor(values, dtype=gt.float64, requires_grad=True),
        torch.tensor(values, dtype=torch.float64, requires_grad=True),
    )


def close(ours: gt.Tensor, theirs: torch.Tensor) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-12, atol=1e-14
    )


CALLS: dict[str, Callable[[object, object], object]] = {
    "inverse": lambda lib, x: lib.linalg.inv(x),
    "log-determinant": lambda lib, x: x.logdet(),
    "entropy": lambda lib, x: lib.special.entr(x),
    "named": lambda lib, x: lib.linalg.vector_norm(x, ord=3.0, dim=1),
    "number": lambda lib, x: lib.mvlgamma(x + 3, 2),
    "list": lambda lib, x: lib.linalg.multi_dot([x, x, x]),
    "several": lambda lib, x: lib.linalg.slogdet(x).logabsdet,
    "twice": lambda lib, x: lib.logaddexp2(x, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives(name: str) -> None:
    function = CALLS[name]
    x, y = both(SQUARE)
    ours, theirs = function(gt, x), function(torch, y)
    close(ours, theirs)
    assert ours.requires_grad == theirs.requires_grad
    (ours_grad,) = gt.autograd.grad(ours.sum(), x, create_graph=True)
    (theirs_grad,) = torch.autograd.grad(theirs.sum(), y, create_graph=True)
    close(ours_grad, theirs_grad)
    (ours_second,) = gt.autograd.grad((ours_grad * ours_grad).sum(), x, create_graph=True)
    (theirs_second,) = torch.autograd.grad((theirs_grad**2).sum(), y, create_graph=True)
    close(ours_second, theirs_second)
    ours_second.sum().backward()
    theirs_second.sum().backward()
    close(x.grad, y.grad)


def test_one_instruction_gives_all_gradients() -> None:
    a, b = (gt.tensor(SQUARE, requires_grad=True) for _ in range(2))
    out = gt.linalg.solve(a, b)
    before = _core.stats()["instructions"]
    ga, gb = gt.autograd.grad(out, [a, b], gt.ones(3, 3))
    ours = [ga.numpy(), gb.numpy()]
    x, y = (torch.tensor(SQUARE, requires_grad=True) for _ in range(2))
    theirs = torch.autograd.grad(torch.linalg.solve(x, y), [x, y], torch.ones(3, 3))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)
    emitted = _core.stats()["instructions"] - before
    assert emitted <= 6, "ones, the product, two reads and frees"


def test_a_result_without_a_gradient_requires_none() -> None:
    x, y = both(SQUARE)
    ours, theirs = gt.linalg.lu(x), torch.linalg.lu(y)
    assert [p.requires_grad for p in ours] == [p.requires_grad for p in theirs]
    assert type(ours).__name__ == "linalg_lu"
    assert ours.__match_args__ == ("P", "L", "U")
    assert not gt.histc(x.detach()).requires_grad


def test_a_missing_derivative_fails_as_in_pytorch() -> None:
    x, y = both([0.5, 0.25])
    ours, theirs = gt.igamma(x, x.detach()), torch.igamma(y, y.detach())
    with pytest.raises(RuntimeError, match="not implemented") as expected:
        theirs.sum().backward()
    assert isinstance(expected.value, RuntimeError)
    with pytest.raises(RuntimeError, match="not implemented"):
        ours.sum().backward()


def test_asked_once_a_signature() -> None:
    x = gt.ones(2, 7)
    gt.i0(x)
    before = gt.debug.stats()["operator_queries"]
    for _ in range(3):
        gt.i0(x + 1)
    assert gt.debug.stats()["operator_queries"] == before
    gt.i0(gt.ones(7, 2))
    assert gt.debug.stats()["operator_queries"] == before + 1


def test_tensors_that_are_one_have_a_signature_of_their_own() -> None:
    for _ in range(2):  # asked for, then known
        x, y = gt.ones(3), gt.full((3,), 2.0)
        for left, right in ((x, x), (x, y), (y, x), (y, y)):
            ours = gt.hypot(left, right).tolist()
            assert ours == pytest.approx([math.hypot(left[0].item(), right[0].item())] * 3)
        before = call.queries()
    gt.hypot(x, x)
    gt.hypot(x, y)
    assert call.queries() == before


def test_arguments_that_are_equal_and_no_less_different() -> None:
    x = gt.ones(3)
    for _ in range(2):
        assert gt.polygamma(1, x).tolist() != gt.polygamma(2, x).tolist()
        for number in (0.0, -0.0):
            nearest = torch.special.xlog1py(torch.ones(3), number * torch.ones(3))
            assert gt.special.xlog1py(x, number).tolist() == nearest.tolist()


def test_an_instruction_is_prepared_once_for_all_operands() -> None:
    stated = {"wanted": [], "results": [8, 1, 3], "differentiable": True, "default": gt.float32}
    exponential = _core.prepare("aten", overload="exp", arguments="_0", **stated)
    for number in (0.0, 1.0):
        x = gt.full((3,), number, requires_grad=True)
        y = exponential(x)
        y.sum().backward()
        assert y.tolist() == x.grad.tolist() == pytest.approx([math.exp(number)] * 3)
    with pytest.raises(ValueError, match="add is no operator of a list of operands"):
        _core.prepare("add")
    with pytest.raises(TypeError, match=r"needs the attribute .overload"):
        _core.prepare("aten", arguments="_0", **stated)
    with pytest.raises(TypeError, match="an attribute that its row does not have"):
        _core.prepare("aten", overload="exp", arguments="_0", more=1, **stated)


def test_what_data_decide_is_asked_for_each_time() -> None:
    for rows in ([[1, 2], [1, 2], [3, 4]], [[1, 2], [5, 2], [3, 4]]):
        before = call.queries()
        ours = call.call("unique_dim", (gt.tensor(rows), 0), {})
        theirs = torch.unique(torch.tensor(rows), dim=0, return_inverse=True, return_counts=True)
        assert [p.tolist() for p in ours] == [p.tolist() for p in theirs]
        assert call.queries() - before in (1, 2)


def test_mistakes_are_raised_at_the_call() -> None:
    calls: list[Callable[[object], object]] = [
        lambda lib: lib.linalg.inv(lib.ones(2, 3)),
        lambda lib: lib.linalg.cholesky(lib.zeros(2)),
        lambda lib: lib.fft.fftshift(lib.ones(2), dim=3),
        lambda lib: lib.linalg.vector_norm(lib.ones(2), ord="fro"),
        lambda lib: lib.i0(3),
        lambda lib: lib.gcd(lib.ones(2), lib.ones(2)),
        lambda lib: lib.logaddexp2(2, lib.ones(2)),
        lambda lib: lib.logaddexp2(lib.ones(2)),
        lambda lib: lib.logaddexp2(lib.ones(2), lib.ones(3)),
        lambda lib: lib.ones(2).logaddexp2(2),
        lambda lib: lib.ones(2).logaddexp2(),
        lambda lib: lib.fft.fft(lib.ones(2), norms="ortho"),
        lambda lib: lib.special.zeta(1, 2),
        lambda lib: lib.linalg.cond(lib.ones(2, 2), p=[1]),
        lambda lib: lib.i0(lib.ones(2), 1, 2),
    ]
    for function in calls:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - PyTorch says which
            function(torch)
        with pytest.raises(errors.Error) as found:
            function(gt)
        base = next(c for c in type(expected.value).__mro__ if c.__module__ == "builtins")
        assert isinstance(found.value, base), (found.value, expected.value)
        text = str(expected.value).split("\n")[0]
        assert str(found.value).startswith(text)


NO_KERNEL: dict[str, Callable[[Any], Any]] = {
    "native_norm": lambda lib: lib.native_norm(lib.ones(2)),
    "native_norm of a gradient": lambda lib: lib.native_norm(lib.ones(2, requires_grad=True)),
    "native_norm of many": lambda lib: lib.native_norm(lib.ones(100_000)),
    "native_norm by dims": lambda lib: lib.native_norm(lib.ones(2), 2, (0,), False, None),
    "int_repr": lambda lib: lib.int_repr(lib.ones(2)),
    "int_repr of a tensor": lambda lib: lib.ones(2).int_repr(),
    "conv_depthwise3d": lambda lib: lib.ops.aten.conv_depthwise3d(
        lib.ones(1, 1, 3, 3, 3), lib.ones(1, 1, 2, 2, 2), (2, 2, 2), None, (1,) * 3, (0,) * 3,
        (1,) * 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_KERNEL)
def test_an_operator_without_a_kernel_says_so_in_a_line(name: str) -> None:
    """PyTorch lists every place where it has registered something."""
    with pytest.raises(NotImplementedError) as theirs:
        NO_KERNEL[name](torch)
    with pytest.raises(errors.NotSupported) as ours:
        NO_KERNEL[name](gt)
    first = str(theirs.value).partition(". ")[0]
    assert str(ours.value) == f"{first}, for which PyTorch has no kernel"


def test_arguments_are_bound_as_pytorch_binds_them() -> None:
    x = gt.tensor(SQUARE)
    (one,) = schemas.of("fft_fft")
    assert isinstance(binding.bind("fft_fft", (x,), {"norm": "ortho"}), tuple)
    schema, bound = binding.bind("fft_fft", (), {"input": x, "axis": 0})
    assert schema is one
    text, operands = binding.written(schema, bound)
    assert (text, operands) == ("_0, None, 0", [x])
    text, _ = binding.written(*binding.bind("fft_fft", (x,), {"norm": "ortho"}))
    assert text == "_0, None, -1, 'ortho'"
    with pytest.raises(TypeError, match="multiple values for argument 'n'"):
        gt.fft.fft(x, 2, n=3)
    with pytest.raises(TypeError, match="out= is not taken"):
        gt.i0(x, out=x)


def test_tensors_by_name_keep_their_places() -> None:
    x, y = gt.tensor([3.0]), gt.tensor([4.0])
    for _ in range(2):
        assert gt.copysign(other=-y, input=x).item() == -3.0
        assert gt.copysign(input=-x, other=y).item() == 3.0
        assert gt.copysign(other=x, input=x).item() == 3.0


def test_floats_that_are_equal_stay_apart() -> None:
    x = gt.tensor([1.0])
    results = [gt.copysign(x, sign).item() for sign in (0.0, -0.0, 1, True, -1)]
    assert results == [torch.copysign(torch.ones(1), s).item() for s in (0.0, -0.0, 1, True, -1)]


def test_numbers_travel_as_they_are() -> None:
    texts = []
    for number in (-0.0, np.float64(0.5), np.int64(2), np.float32(0.5), True, 1e300, -math.inf):
        bound = binding.bind("threshold", (gt.ones(1), number, 0), {})
        texts.append(binding.written(*bound)[0])
    numbers = ["-0.0", "0.5", "2", "0.5", "True", "1e+300", "-inf"]
    assert texts == [f"_0, {number}, 0" for number in numbers]
    (schema,) = (one for one in schemas.of("histc"))
    _, bound = binding.bind("histc", (gt.ones(1), 3, -0.0, np.float64(2)), {})
    assert binding.written(schema, bound)[0] == "_0, 3, -0.0, 2.0"
    assert gt.copysign(gt.ones(1), np.float64(-0.0)).item() == -1.0


def test_the_default_dtype_is_the_clients() -> None:
    whole = [3, 4]
    assert gt.i0(gt.tensor(whole)).dtype == gt.float32
    gt.set_default_dtype(gt.float64)
    torch.set_default_dtype(torch.float64)
    try:
        ours, theirs = gt.i0(gt.tensor(whole)), torch.i0(torch.tensor(whole))
        assert (ours.dtype, theirs.dtype) == (gt.float64, torch.float64)
        assert ours.tolist() == theirs.tolist()
    finally:
        gt.set_default_dtype(gt.float32)
        torch.set_default_dtype(torch.float32)
    assert gt.i0(gt.tensor(whole)).dtype == gt.float32


def test_a_write_after_the_call_is_found() -> None:
    x = gt.tensor(SQUARE, requires_grad=True)
    y = x * 1
    out = gt.linalg.inv(y)
    y.add_(1)  # the gradient reads the inverse alone
    out.sum().backward()
    out = gt.linalg.inv(x)
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def emitted(overload: str, results: list[int], x: gt.Tensor, text: str = "_0") -> gt.Tensor:
    made = _core.call(
        "aten", x, overload=overload, arguments=text, wanted=[], results=results,
        differentiable=True, default=gt.float32,
    )  # fmt: skip
    assert isinstance(made, gt.Tensor)
    return made


@pytest.mark.parametrize("overload", ["from_file", "add_.Tensor", "_nested_tensor_size", "x" * 900])
def test_only_listed_operators_run(overload: str) -> None:
    made = emitted(overload, [8, 1, 2], gt.ones(2))
    with pytest.raises(errors.Error, match="no operator that an instruction may name"):
        made.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "_0.__class__",
        "_0, *_1",
        "_0,, 1",
        "f(_0)",
        "_7",
        "_0, nonsense",
        "(",
        "",
    ],
)
def test_a_text_is_data(text: str) -> None:
    made = emitted("lgamma", [8, 1, 2], gt.ones(2), text)
    with pytest.raises(errors.Error):
        made.tolist()


def test_stated_results_are_compared() -> None:
    made = emitted("lgamma", [8, 1, 3], gt.ones(2))
    with pytest.raises(errors.Error, match="was expected"):
        (made + 1).tolist()
    for wrong in ([8], [8, 1], [8, 2, 3], [99, 0], [8, 1, -1], [], [8, 9, *[1] * 9]):
        with pytest.raises(errors.Error):
            emitted("lgamma", wrong, gt.ones(2))


def test_cut_values_are_whole_where_they_are_needed() -> None:
    whole = torch.tensor(SQUARE, requires_grad=True)
    expected = torch.linalg.inv(whole + torch.eye(3))
    expected.sum().backward()
    with workers(2):
        leaf = gt.tensor(SQUARE, requires_grad=True)
        out = gt.linalg.inv(gt.distribute(leaf, dim=0) + gt.eye(3))
        np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
        out.sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), whole.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_numpy_workers_say_what_they_lack() -> None:
    with Cluster(1, backend="numpy") as cluster:
        text = cluster.run(
            "import gt\n"
            "try:\n    gt.i0(gt.ones(2))\n"
            "except gt.Error as error:\n    print(type(error).__name__, error)"
        )
    assert "needs a worker with torch" in text


def test_every_schema_is_read() -> None:
    letters = "tmnlfspo"
    names = set(itertools.chain.from_iterable(schemas.names(letter) for letter in letters))
    found = [schema.overload for name in names for schema in schemas.of(name)]
    assert set(found) == schemas.overloads_allowed()
    for overload in found:
        name, _, variant = overload.partition(".")
        if name not in torch_own.FORWARD:
            assert getattr(getattr(torch.ops.aten, name), variant or "default") is not None
    assert set(schemas.names("o")) == set(torch_own.FORWARD)


ZEROS = [
    lambda m, x: m.linalg.vector_norm(x, 1),
    lambda m, x: m.linalg.norm(x, float("inf"), (1,), True),
    lambda m, x: m.linalg.matrix_norm(x, -float("inf")),
]


@pytest.mark.parametrize("norm", ZEROS)
def test_a_second_derivative_that_is_zero_has_memory(norm: Callable[..., Any]) -> None:
    # PyTorch gives it as a tensor without any, which ended the worker that read it.
    x = gt.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], requires_grad=True)
    slope = gt.autograd.grad(norm(gt, x).sum(), x, create_graph=True)[0]
    assert gt.autograd.grad(slope.sum(), x)[0].tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("p", [0, 1, 2, 3.0, float("inf")])
def test_of_no_elements_nothing_arrives(p: float) -> None:
    # PyTorch's kernel ends the process.
    x = gt.zeros(0, 2, requires_grad=True)
    distances = gt.nn.functional.pdist(x, p)
    assert gt.autograd.grad(distances, x, gt.zeros(0))[0].shape == (0, 2)


def test_the_gradient_of_a_number_is_an_empty_tuple() -> None:
    assert gt.gradient(gt.tensor(2.0)) == torch.gradient(torch.tensor(2.0)) == ()


def test_results_are_those_of_kernels_where_meta_kernels_say_others() -> None:
    ours, theirs = both([0.1, 0.7, 0.2])
    losses = [
        m.nn.functional.multi_margin_loss(x, m.tensor(1), reduction="none")
        for m, x in ((gt, ours), (torch, theirs))
    ]
    close(*losses)
    parts = [
        [m.tensor(1), m.ones(3, dtype=m.int8), m.ones(1, 1, dtype=m.uint8)] for m in (gt, torch)
    ]
    blocks = gt.block_diag(*parts[0]), torch.block_diag(*parts[1])
    assert blocks[0].dtype == gt.int16
    assert blocks[0].tolist() == blocks[1].tolist()


def test_none_stands_for_an_empty_list() -> None:
    x = gt.arange(16.0).view(1, 1, 4, 4)
    pooled = gt.nn.functional.avg_pool2d(x, 2, None)
    assert pooled.tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]
    assert gt.nn.functional.avg_pool2d(x, 2, stride=None).shape == (1, 1, 2, 2)
