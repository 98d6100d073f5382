"""Convolutions over a batch that is cut for threads: values of the whole, bits of both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_generic import attributes  # noqa: E402
from test_aten_rows import bits  # noqa: E402

from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.pytorch import convolution  # noqa: E402
from gt.worker.pytorch import generic as torch_aten  # noqa: E402
from gt.worker.pytorch import own as torch_own  # noqa: E402
from gt.worker.pytorch import threads as torch_threads  # noqa: E402

DRAWN = torch.Generator().manual_seed(5)
TEXT = "_0, _1, _2, {}"


def drawn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, generator=DRAWN).to(dtype)


# The operator, its arguments after the bias, input, weight and bias.
CASES = {
    "pictures": ("conv2d", "[2, 1], [1, 0], [1, 2], 1", (7, 4, 9, 8), (6, 4, 3, 3), (6,)),
    "groups": ("conv2d", "[1, 1], [1, 1], [1, 1], 2", (4, 4, 9, 8), (6, 2, 3, 3), None),
    "a line": ("conv1d", "[1], [2], [1], 1", (5, 3, 20), (4, 3, 5), (4,)),
    "volumes": (
        "conv3d",
        "[1, 1, 1], [0, 0, 0], [1, 1, 1], 1",
        *((4, 2, 5, 6, 7), (3, 2, 3, 3, 3), None),
    ),
    "transposed": (
        "conv_transpose2d.input",
        "[2, 2], [1, 1], [1, 1], 1, [1, 1]",
        *((6, 4, 5, 5), (4, 3, 3, 3), (3,)),
    ),
    "the general one": (
        "convolution",
        "[1, 1], [1, 1], [1, 1], False, [0, 0], 1",
        *((5, 3, 8, 8), (4, 3, 3, 3), (4,)),
    ),
}


@pytest.fixture(autouse=True)
def _several_threads() -> Iterator[None]:
    setter, before = torch_threads.setter(), torch.get_num_threads()
    if torch_threads.most() == 1 or setter is None:
        pytest.skip("one thread here")
    setter.call(torch_threads.most())
    yield
    assert torch.get_num_threads() == torch_threads.most()
    setter.call(before)


def operands(name: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor | None]:
    *_, input, weight, bias = CASES[name]
    return [None if x is None else drawn(*x, dtype=dtype) for x in (input, weight, bias)]


def call(name: str, given: list[torch.Tensor | None], *, whole: bool = False) -> torch.Tensor:
    overload, options, *_ = CASES[name]
    build, _ = torch_aten.arguments.parse(TEXT.format(options), torch_aten.dtype_named)
    arguments, named = build(given)
    base, _, variant = overload.partition(".")
    plain = getattr(getattr(torch.ops.aten, base), variant or "default")
    return (plain if whole else torch_own.FASTER[overload])(*arguments, **named)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_parts_together_are_the_whole(name: str, dtype: torch.dtype) -> None:
    given = operands(name, dtype)
    with torch.inference_mode():
        assert convolution._parts(*given)  # type: ignore[arg-type]
        ours, expected = call(name, given), call(name, given, whole=True)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", CASES)
def test_the_helper_has_the_bits_of_python(aten_helper: Trial, name: str) -> None:  # noqa: F811
    overload, options, *_ = CASES[name]
    given = operands(name)
    text = TEXT.format(options)
    listed = [x for x in given if x is not None]
    if given[2] is None:
        text = text.replace("_2", "None")
    with torch.inference_mode():
        expected = call(name, given)
        stated = attributes(overload, text, [], [expected])
        ours = aten_helper.run("aten", [listed], stated)
        assert ours is not None
        assert bits(ours[0]) == bits(expected)
        grad = drawn(*expected.shape)
        wanted = [*range(len(listed)), torch_aten.END]
        stated = attributes(overload, text, wanted, listed)
        ours = aten_helper.run("aten_vjp", [[*listed, grad]], stated)
        from_python = torch_aten.kernels(torch.device("cpu"))["aten_vjp"]([*listed, grad], *stated)
    if overload == "convolution":  # of which the helper has no gradients
        assert ours is None
        ours = from_python
    assert ours is not None
    assert [bits(x) for x in ours] == [bits(x) for x in from_python]
    leaves = [x.double().requires_grad_() for x in listed]
    whole: list[torch.Tensor | None] = [*leaves, *([None] * (3 - len(leaves)))]
    theirs = torch.autograd.grad(call(name, whole, whole=True), leaves, grad.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, True], [False, True, False]])
def test_gradients_that_are_not_wanted(mask: list[bool]) -> None:
    input, weight, bias = operands("pictures")
    assert input is not None
    assert weight is not None
    assert bias is not None
    grad = drawn(7, 6, 5, 4)
    options = ([6], [2, 1], [1, 0], [1, 2], False, [0, 0], 1, mask)
    with torch.inference_mode():
        ours = convolution.backward(grad, input, weight, *options)
        theirs = torch.ops.aten.convolution_backward(grad, input, weight, *options)
    assert [x is not None for x in ours] == mask
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_has_no_batch_or_a_small_one_stays_whole() -> None:
    weight = drawn(4, 3, 3, 3)
    assert not convolution._parts(drawn(3, 8, 8), weight)
    assert not convolution._parts(drawn(torch_threads.most() - 1, 3, 8, 8), weight)
    assert not convolution._parts(drawn(8, 3, 8, 8).requires_grad_(), weight)
    assert convolution._parts(drawn(torch_threads.most(), 3, 8, 8), weight)


def test_channels_last_stay_last() -> None:
    given = operands("pictures")
    given[0] = drawn(7, 9, 8, 4).permute(0, 3, 1, 2)
    with torch.inference_mode():
        ours, expected = call("pictures", given), call("pictures", given, whole=True)
    torch.testing.assert_close(ours, expected)
    assert ours.stride() == expected.stride()


def test_mistakes_are_told_as_pytorch_tells_them() -> None:
    given = operands("pictures")
    given[1] = drawn(6, 5, 3, 3)
    told = []
    for whole in (False, True):
        with torch.inference_mode(), pytest.raises(RuntimeError) as error:
            call("pictures", given, whole=whole)
        told.append(str(error.value).replace("[7, ", "[b, ").replace("[3, ", "[b, "))
    assert told[0] == told[1]
