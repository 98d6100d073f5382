"""Tensors from data, from sizes and from the generator; dtypes without a tensor."""

import re
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from harness.convert import DTYPES
from same_expression import OURS, THEIRS, check

import gt
from gt import _core, creation, dtypes
from gt import random as random_tensors

INF, NAN = float("inf"), float("nan")
NUMBERS = [[0, 1], [True, -3]]

CREATION: list[Callable[..., object]] = [
    lambda m: m.tensor([1, 2, 3]),
    lambda m: m.tensor([1.0, 2, 3]),
    lambda m: m.tensor([[True], [False]]),
    lambda m: [m.tensor(1), m.tensor(2.5), m.tensor(True), m.tensor([])],
    lambda m: m.tensor([[1, 2], [3, 4]], dtype=m.float64),
    lambda m: m.tensor(np.arange(4)),
    lambda m: m.tensor(np.ones((2, 2), np.float32)),
    lambda m: m.tensor(np.ones((2, 2))),
    lambda m: m.tensor([np.float32(1), np.float32(2)]),
    lambda m: m.tensor([np.array([1.0, 2.0]), np.array([1.0, 2.0])]),
    lambda m: m.tensor(m.tensor([1, 2])),
    lambda m: m.tensor([m.tensor(1), m.tensor(2)]),
    lambda m: m.tensor(((1, 2), (3, 4))),
    lambda m: m.tensor(range(3)),
    lambda m: m.tensor([[], []]),
    lambda m: [m.tensor([True, 2]), m.tensor([True, 2.5]), m.tensor([1 << 62, -(1 << 63)])],
    lambda m: [m.tensor([2**53 + 1, 0.5]), m.tensor(1e300), m.tensor([-1e300, INF, NAN])],
    lambda m: [m.tensor(NUMBERS, dtype=d) for d in (m.float64, m.float16, m.int32)],
    lambda m: [m.tensor(16777217, dtype=m.float32), m.tensor([2**53 + 1], dtype=m.float64)],
    lambda m: [m.tensor(2.9, dtype=m.int64), m.tensor([2.9, -2.9], dtype=m.int64)],
    lambda m: [m.tensor([0, 2, 0.5], dtype=m.bool), m.tensor(3, dtype=m.bool)],
    lambda m: [m.tensor([1.5, 2], requires_grad=True), m.tensor(2.0, requires_grad=True)],
    lambda m: [m.tensor([1 + 2j, 3]), m.tensor([[1, 2j]], dtype=m.complex128)],
    lambda m: [m.tensor([[[1], [2]]]), m.tensor([[1], (2,)]), m.tensor([(), ()])],
    lambda m: [m.tensor(np.float32(3)), m.tensor([np.int16(3), 4]), m.tensor(np.array(3))],
    lambda m: [m.from_numpy(np.arange(12.0).reshape(3, 4)[:, ::2]), m.from_numpy(np.ones((0, 3)))],
    lambda m: [m.from_numpy(np.ones((2, 1, 3), name)) for name in dtypes.FROM_NUMPY],
    lambda m: m.as_tensor([1.5, 2]),
    lambda m: m.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3)),
    lambda m: m.from_numpy(np.arange(6.0).reshape(2, 3).T),
    lambda m: [m.zeros(2, 3), m.zeros((2, 3)), m.zeros([]), m.zeros(2, dtype=m.int64)],
    lambda m: [m.zeros(size=(2, 3)), m.zeros(()), m.zeros(0, 3)],
    lambda m: [m.ones(2), m.ones((1, 2)), m.ones(2, dtype=m.bool)],
    lambda m: [
        m.full((2,), 3),
        m.full((2,), 2.5),
        m.full((), True),
        m.full([2], 1, dtype=m.float16),
    ],
    lambda m: [
        m.arange(5),
        m.arange(2, 5),
        m.arange(0, 1, 0.25),
        m.arange(5.0),
        m.arange(5, 0, -2),
    ],
    lambda m: [m.linspace(0, 1, 5), m.linspace(1, 1, 1), m.eye(3), m.eye(2, 3)],
    lambda m: m.logspace(0, 2, 3),
    lambda m: [m.zeros_like(m.arange(3)), m.ones_like(m.zeros(2)), m.full_like(m.zeros(2), 7)],
    lambda m: [m.zeros_like(m.arange(3), dtype=m.float32)],
    lambda m: m.arange(3).new_zeros(2, 2),
    lambda m: [m.zeros(2).new_ones((3,)), m.zeros(2).new_full((2,), 4), m.zeros(2).new_tensor([1])],
    lambda m: [m.is_tensor(m.zeros(1)), m.is_tensor(1), m.numel(m.zeros(2, 3))],
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", CREATION, ids=range(len(CREATION)))
def test_creation(function: Callable[..., object]) -> None:
    check(function, [])


@pytest.mark.parametrize("data", [[[1], [2, 3]], [1 << 70], [1, "a"], [None], 1 << 70], ids=str)
def test_what_is_no_tensor_is_refused_as_in_pytorch(data: object) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever PyTorch raises
        torch.tensor(data)
    with pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        gt.tensor(data)


def test_a_read_only_array_is_copied() -> None:
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    assert gt.from_numpy(array).tolist() == array.tolist()
    assert gt.tensor(array).tolist() == array.tolist()


def test_ints_become_float_where_a_gradient_is_asked_for() -> None:
    x = creation.tensor([1, 2, 3], requires_grad=True)
    assert x.dtype == _core.float32
    assert x.requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        creation.tensor(np.arange(3), requires_grad=True)


VALUES = torch.tensor([[0.0, 1.0, -2.5], [3.3e38, 1e-40, INF], [NAN, -INF, 1 + 2**-8]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_pytorch_keeps_dtype_and_bits(dtype: torch.dtype) -> None:
    """Also where it is strided, has no elements or dimensions, or requires a gradient."""
    numbers = (
        VALUES.to(dtype) if dtype.is_floating_point else VALUES.clamp(0, 1).nan_to_num().to(dtype)
    )
    for part in (numbers, numbers.T[::2], numbers[:0], numbers[1, 0], numbers[0, :2]):
        theirs = part.detach().requires_grad_(dtype.is_floating_point)
        for ours in (gt.tensor(theirs), gt.as_tensor(theirs)):
            assert not ours.requires_grad
            assert ours.dtype == DTYPES[dtype]
            assert tuple(ours.shape) == tuple(theirs.shape)
            bits = theirs.detach().reshape(-1).contiguous().view(torch.uint8)
            assert _core.read_bytes(ours).tobytes() == bits.numpy().tobytes()


def test_a_tensor_of_pytorch_takes_the_dtype_that_is_asked_for() -> None:
    theirs = torch.tensor([1.5, 2.5], dtype=torch.bfloat16, requires_grad=True)
    assert gt.tensor(theirs, dtype=gt.float64).tolist() == [1.5, 2.5]
    assert gt.tensor(theirs, dtype=gt.float64).dtype == gt.float64
    assert gt.tensor(theirs, requires_grad=True).requires_grad
    assert gt.zeros(1, dtype=gt.float16).new_tensor(theirs).dtype == gt.float16
    pair = [torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)]
    assert gt.tensor(pair).dtype == gt.float64
    assert gt.tensor([torch.tensor(1.0, requires_grad=True), 2]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn], ids=str)
def test_a_dtype_that_gt_lacks_is_named(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"can't convert .*(uint16|float8_e4m3fn)"):
        gt.tensor(torch.zeros(2).to(dtype))


def test_an_array_of_another_library_keeps_its_dtype() -> None:
    class Column:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.array([1.0, 2.0])

    assert gt.tensor(Column()).dtype == gt.as_tensor(Column()).dtype == gt.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_numbers_round_to_bfloat16_as_in_pytorch(dtype: torch.dtype) -> None:
    numbers = torch.randn(4096, generator=torch.Generator().manual_seed(0), dtype=dtype)
    kinks = VALUES[:2].reshape(-1).to(dtype)  # of NaN PyTorch's kernels make several bits
    numbers = torch.cat([numbers, kinks, 1 + torch.arange(9) * 2.0**-8])
    ours = gt.tensor(numbers.to(dtype).numpy(), dtype=gt.bfloat16)
    theirs = numbers.to(dtype).to(torch.bfloat16)
    assert _core.read_bytes(ours).tobytes() == theirs.view(torch.uint8).numpy().tobytes()


def test_default_dtype() -> None:
    try:
        dtypes.set_default_dtype(_core.float64)
        assert creation.zeros(2).dtype == creation.tensor([1.5]).dtype == _core.float64
        assert random_tensors.randn(2).dtype == _core.float64
    finally:
        dtypes.set_default_dtype(_core.float32)
    with pytest.raises(TypeError):
        dtypes.set_default_dtype(_core.int64)


NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("first", NAMES)
def test_promotion(first: str) -> None:
    for second in NAMES:
        ours, theirs = [(getattr(m, first), getattr(m, second)) for m in (_core, torch)]
        assert repr(dtypes.promote_types(*ours))[3:] == str(torch.promote_types(*theirs))[6:]
        assert dtypes.can_cast(*ours) == torch.can_cast(*theirs)


@pytest.mark.parametrize("first", NAMES)
def test_result_type(first: str) -> None:
    for second in [*NAMES, 1, 1.5, True]:
        for left, right in ((1, 1), (0, 1), (1, 0), (0, 0)):
            pair = []
            for m in (OURS, THEIRS):
                x = m.zeros((2,) * left, dtype=getattr(m, first))
                named = isinstance(second, str)
                y = m.zeros((2,) * right, dtype=getattr(m, second)) if named else second
                pair.append((x, y))
            ours, theirs = dtypes.result_type(*pair[0]), torch.result_type(*pair[1])
            assert repr(ours)[3:] == str(theirs)[6:], (first, second, left, right)


def test_limits() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        ours, theirs = dtypes.finfo(getattr(_core, name)), torch.finfo(getattr(torch, name))
        for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
            assert getattr(ours, field) == getattr(theirs, field), (name, field)
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours, theirs = dtypes.iinfo(getattr(_core, name)), torch.iinfo(getattr(torch, name))
        assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)


def drawn_twice(function: Callable[[], _core.Tensor]) -> np.ndarray:
    random_tensors.manual_seed(5)
    first = function().numpy()
    random_tensors.manual_seed(5)
    np.testing.assert_array_equal(first, function().numpy())
    return first


def test_random_tensors() -> None:
    r = random_tensors
    assert drawn_twice(lambda: r.rand(2, 3)).shape == (2, 3)
    assert abs(drawn_twice(lambda: r.randn((4000,))).std() - 1) < 0.1
    numbers = drawn_twice(lambda: r.randint(2, 5, (300,)))
    assert set(numbers.tolist()) == {2, 3, 4}
    assert set(drawn_twice(lambda: r.randint(3, (99,))).tolist()) == {0, 1, 2}
    assert sorted(drawn_twice(lambda: r.randperm(50)).tolist()) == list(range(50))
    assert abs(drawn_twice(lambda: r.normal(3.0, 0.1, (999,))).mean() - 3) < 0.1
    assert r.rand_like(creation.zeros(2, 2)).shape == r.randn_like(creation.zeros(2, 2)).shape
    mean = creation.full((999,), 2.0)
    assert abs(drawn_twice(lambda: r.normal(mean, mean * 0.01)).mean() - 2) < 0.1


def test_random_in_place() -> None:
    blank = creation.zeros(2000)
    assert abs(drawn_twice(lambda: blank.clone().normal_(1, 2)).std() - 2) < 0.2
    assert 2 <= drawn_twice(lambda: blank.clone().uniform_(2, 3)).min() < 2.1
    assert set(drawn_twice(lambda: blank.clone().random_(0, 3)).tolist()) == {0, 1, 2}
    assert abs(drawn_twice(lambda: blank.clone().bernoulli_(0.3)).mean() - 0.3) < 0.1
    assert abs(drawn_twice(lambda: blank.clone().exponential_(2.0)).mean() - 0.5) < 0.1


def test_state_of_the_generator() -> None:
    random_tensors.manual_seed(3)
    random_tensors.rand(2)
    state = random_tensors.get_rng_state()
    first = random_tensors.rand(3).numpy()
    random_tensors.set_rng_state(state)
    np.testing.assert_array_equal(first, random_tensors.rand(3).numpy())
    assert random_tensors.initial_seed() == 3


def test_generator_of_ones_own() -> None:
    own = random_tensors.Generator().manual_seed(11)
    first = random_tensors.rand(3, generator=own).numpy()
    random_tensors.manual_seed(11)
    np.testing.assert_array_equal(first, random_tensors.rand(3).numpy())
    assert (random_tensors.rand(3, generator=own).numpy() != first).any()


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement: bool) -> None:
    weights = creation.tensor([[0.1, 0.0, 0.6, 0.3]] * 4000)
    draws = drawn_twice(lambda: weights.multinomial(2, replacement))
    assert draws.shape == (4000, 2)
    shares = np.bincount(draws[:, 0], minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.1, 0.0, 0.6, 0.3], atol=0.04)
    assert replacement or (draws[:, 0] != draws[:, 1]).all()


def test_bernoulli() -> None:
    p = creation.tensor([0.0, 1.0] * 500)
    np.testing.assert_array_equal(drawn_twice(p.bernoulli), p.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("asked", [None, "float64"])
def test_a_list_of_numbers_in_tensors_is_a_copy(dtype: str, asked: str | None) -> None:
    def program(lib: ModuleType) -> object:
        x = lib.tensor([1, 0, 3]).to(getattr(lib, dtype))
        out = lib.tensor([x[0], x[2]], dtype=asked and getattr(lib, asked))
        out[0] = 0
        one = lib.tensor((x[1],), dtype=asked and getattr(lib, asked))
        return [t.tolist() for t in (x, out, one)], str(out.dtype), tuple(one.shape)

    def text(found: object) -> str:
        return str(found).replace("torch.", "gt.")

    assert text(program(gt)) == text(program(torch))


def test_a_list_of_numbers_in_tensors_has_no_gradient_and_nobody_reads_it() -> None:
    x = gt.tensor([1.0, 2.0], requires_grad=True)
    out = gt.tensor([x[0], x[1] * 2])
    assert not out.requires_grad
    assert out.grad_fn is None
    leaf = gt.tensor([x[0]], requires_grad=True)
    (leaf * 3).sum().backward()
    assert leaf.grad is not None
    assert (leaf.is_leaf, leaf.grad.tolist(), x.grad) == (True, [3.0], None)
