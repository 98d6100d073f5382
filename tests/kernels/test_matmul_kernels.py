"""Matrix products of gt._kernels beside sums in float64, on every instruction set of this machine.

Outputs start as NaN, and what is around them must stay as it was.
"""

import itertools
import os
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernel_module import load_kernels, on_every_path  # noqa: E402
from torch.nn import functional  # noqa: E402

kernels = load_kernels()

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1e-2}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
of_every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def _random(*shape, dtype, generator):
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def _matrices(*shape, dtype, generator):
    """Equal matrices with contiguous rows, with contiguous columns, and with gaps."""
    x = _random(*shape, dtype=dtype, generator=generator)
    by_columns = x.mT.contiguous().mT
    wide = torch.full((*shape[:-2], 2 * shape[-2], 3 * shape[-1] + 1), torch.nan, dtype=dtype)
    gaps = wide[..., ::2, 1::3]
    gaps.copy_(x)
    return x, by_columns, gaps


def _poisoned(*shape, dtype):
    """A view with room around it, all of it NaN."""
    wide = torch.full((*shape[:-1], shape[-1] + 5), torch.nan, dtype=dtype)
    return wide, wide[..., 2:-3]


def _check(made, expected, around):
    """By the sizes of the element and of its row: a sum's error follows those of its terms."""
    wide, out = made
    size = expected.abs() + expected.abs().mean() + 1e-3
    error = ((out.double() - expected).abs() / size).max().item() if out.numel() else 0.0
    assert error <= TOLERANCE[out.dtype], error
    edges = torch.cat([wide[..., :2], wide[..., -3:]], -1)
    assert edges.isnan().all(), around


# Worth several threads: cut by rows, by columns, and neither, for a greater depth than is packed at
# once, with more rows or columns than have sums of their own at once.
SHARED = [(400, 93, 130), (91, 401, 130), (1200, 18, 2700), (18, 1200, 2700)]
SIZES = [
    (1, 1, 1),
    (1, 5, 700),
    (3, 100, 33),
    (5, 64, 9),
    (8, 130, 64),
    (9, 31, 8),
    (13, 37, 500),
    (150, 193, 321),  # one more than a task's part or a block of the depth
    (1153, 3, 17),
    (3, 1153, 17),
    (1160, 1153, 5),  # more columns, more rows than are kept at once
    (1153, 1160, 5),
    *SHARED,
]


# Places of the operands' layouts in _matrices. Each operand is read by its own layout alone.
of_every_layout = pytest.mark.parametrize(
    "layouts",
    [
        pytest.param([(0, 0), (1, 1), (2, 2)], id="alike"),
        pytest.param(
            [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)],
            id="different",
            marks=pytest.mark.values_only,
        ),
    ],
)


@on_every_path
@of_every_dtype
@of_every_layout
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_layout_of_operands(size, layouts, dtype):
    m, n, k = size
    generator = torch.Generator().manual_seed(m * n + k)
    lefts = _matrices(m, k, dtype=dtype, generator=generator)
    rights = _matrices(k, n, dtype=dtype, generator=generator)
    expected = lefts[0].double() @ rights[0].double()
    for of_left, of_right in layouts:
        left, right = lefts[of_left], rights[of_right]
        made = _poisoned(m, n, dtype=dtype)
        kernels.matmul(made[1], left, right)
        _check(made, expected, size)
        twice = torch.empty(m, n, dtype=dtype)
        kernels.matmul(twice, left, right, threads=3)
        assert torch.equal(twice, made[1]), "threads change bits"


MIXED = [
    dtypes
    for dtypes in itertools.product((torch.float32, torch.bfloat16), repeat=3)
    if len(set(dtypes)) > 1
]


@on_every_path
@pytest.mark.parametrize("dtypes", MIXED, ids=str)
@of_every_layout
@pytest.mark.parametrize("size", [(1, 5, 70), (4, 130, 64), *SHARED], ids=str)
def test_operands_and_result_of_different_dtypes(size, layouts, dtypes):
    m, n, k = size
    generator = torch.Generator().manual_seed(n)
    dtype = dtypes[2]
    bias = _random(n, dtype=dtype, generator=generator)
    residual = _random(m, n, dtype=dtype, generator=generator)
    lefts = _matrices(m, k, dtype=dtypes[0], generator=generator)
    rights = _matrices(k, n, dtype=dtypes[1], generator=generator)
    expected = lefts[0].double() @ rights[0].double() + bias.double() + residual.double()
    for of_left, of_right in layouts:
        made = _poisoned(m, n, dtype=dtype)
        kernels.matmul(made[1], lefts[of_left], rights[of_right], bias, residual, threads=3)
        _check(made, expected, dtypes)


@on_every_path
@of_every_dtype
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [(4, 37, 20), (30, 37, 400), *SHARED], ids=str)
def test_what_follows_the_sums(activation, size, dtype):
    m, n, k = size
    generator = torch.Generator().manual_seed(7)
    a = _random(m, k, dtype=dtype, generator=generator)
    w = _random(n, k, dtype=dtype, generator=generator)
    bias = _random(n, dtype=dtype, generator=generator)
    residual = _random(m, 2 * n, dtype=dtype, generator=generator)[:, n:]
    sums = 0.25 * (a.double() @ w.double().T) + bias.double()
    expected = ACTIVATIONS[activation](sums) + residual.double()
    made = _poisoned(m, n, dtype=dtype)
    kernels.matmul(made[1], a, w.T, bias, residual, activation, 0.25, 3)
    _check(made, expected, activation)
    # Added to what is there.
    made[1].copy_(residual)
    kernels.matmul(made[1], a, w.T, bias, made[1], activation, 0.25, 3)
    _check(made, expected, activation)


@on_every_path
@of_every_dtype
@pytest.mark.parametrize("size", [(4, 37, 20), *SHARED], ids=str)
def test_a_gate_has_the_bits_of_the_gradient_of_relu(size, dtype):
    m, n, k = size
    generator = torch.Generator().manual_seed(8)
    a = _random(m, k, dtype=dtype, generator=generator)
    w = _random(k, n, dtype=dtype, generator=generator)
    gate = torch.relu(_random(m, n, dtype=dtype, generator=generator))
    gate[0, :4] = torch.tensor([torch.nan, -0.0, -1.0, torch.inf])
    made, plain = _poisoned(m, n, dtype=dtype), torch.empty(m, n, dtype=dtype)
    kernels.matmul(plain, a, w)
    kernels.matmul(made[1], a, w, None, gate, "gate", 1.0, 3)
    assert torch.equal(made[1], torch.ops.aten.threshold_backward(plain, gate, 0))


@on_every_path
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_of_an_activation(activation):
    values = [0.0, -0.0, 1e-30, -1e-4, 0.5, -1.5, 4.0, -7.0, 20.0, -20.0, 90.0, -200.0, torch.nan]
    x = torch.tensor(values)[:, None]
    for dtype, tolerance in ((torch.float32, 4e-7), (torch.float64, 1e-14)):
        out = torch.empty(len(values), 1, dtype=dtype)
        kernels.matmul(out, x.to(dtype), torch.ones(1, 1, dtype=dtype), activation=activation)
        expected = ACTIVATIONS[activation](x.double())
        torch.testing.assert_close(
            out.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True
        )


@on_every_path
@of_every_dtype
def test_batches_broadcast(dtype):
    generator = torch.Generator().manual_seed(3)
    for left, right, batch in (
        ((2, 3), (2, 3), (2, 3)),
        ((2, 1), (3,), (2, 3)),
        ((), (2, 3), (2, 3)),
        ((5,), (), (5,)),
        ((0,), (0,), (0,)),
    ):
        a = _random(*left, 6, 7, dtype=dtype, generator=generator)
        b = _random(*right, 7, 9, dtype=dtype, generator=generator)
        made = _poisoned(*batch, 6, 9, dtype=dtype)
        kernels.matmul(made[1], a, b, threads=2)
        _check(made, a.double() @ b.double(), batch)


@on_every_path
@of_every_dtype
def test_sizes_of_zero(dtype):
    bias = torch.linspace(-1, 1, 4, dtype=dtype)
    out = torch.full((3, 4), torch.nan, dtype=dtype)
    kernels.matmul(out, torch.empty(3, 0, dtype=dtype), torch.empty(0, 4, dtype=dtype), bias)
    assert torch.equal(out, bias.expand(3, 4))
    for m, n in ((0, 4), (3, 0)):
        out = torch.empty(m, n, dtype=dtype)
        kernels.matmul(out, torch.ones(m, 2, dtype=dtype), torch.ones(2, n, dtype=dtype))


@on_every_path
@of_every_dtype
def test_random_sizes_have_one_set_of_bits(dtype):
    numbers = np.random.default_rng(5)
    generator = torch.Generator().manual_seed(5)
    for _ in range(12):
        m, n, k = (int(size) for size in numbers.integers(1, 400, 3))
        a = _random(m, k, dtype=dtype, generator=generator)
        b = _random(k, n, dtype=dtype, generator=generator)
        outs = [_poisoned(m, n, dtype=dtype) for _ in range(3)]
        for threads, made in enumerate(outs, 1):
            kernels.matmul(made[1], a, b, threads=threads)
        _check(outs[0], a.double() @ b.double(), (m, n, k))
        assert all(torch.equal(outs[0][1], other) for _, other in outs[1:]), (m, n, k)


def test_numpy_arrays():
    a, b = np.ones((20, 30), np.float32), np.full((30, 10), 2, np.float32)
    out = np.full((20, 10), np.nan, np.float32)
    a.flags.writeable = False
    kernels.matmul(out, a, b)
    assert (out == 60).all()
    with pytest.raises(TypeError, match="out is a ndarray, not an array that can be used"):
        kernels.matmul(a, a, a)


def test_infinities_and_nan_pass():
    a = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [0.0, 1.0]])
    out = torch.empty(3, 1)
    kernels.matmul(out, a, torch.ones(2, 1))
    assert torch.equal(out.nan_to_num(7.0, 9.0), torch.tensor([[9.0], [7.0], [1.0]]))


def test_a_child_of_fork_multiplies():
    a = torch.ones(300, 300)
    out = torch.empty(300, 300)
    kernels.matmul(out, a, a, threads=2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kernels.matmul(out, a, 2 * a.numpy(), threads=2)
            status = 0 if bool((out.numpy() == 600).all()) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (out == 300).all()


MISTAKES = [
    (
        ((2, 3), (2, 4), (5, 3)),
        {},
        ValueError,
        "matmul: out [2, 3], a [2, 4] and b [5, 3] are not [..., m, n], [..., m, k] and [..., k",
    ),
    (
        ((3,), (3,), (3, 3)),
        {},
        ValueError,
        "matmul: out [3], a [3] and b [3, 3] need 2 to 16 dims each",
    ),
    (
        ((2, 3, 3), (4, 3, 3), (3, 3)),
        {},
        ValueError,
        "matmul: out [2, 3, 3], a [4, 3, 3] and b [3, 3] differ in their leading dims",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"threads": 0},
        ValueError,
        "matmul: threads 0 is not in [1, 256]",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"activation": "tanh"},
        ValueError,
        "matmul: activation 'tanh' is not none, relu, gelu, gelu_tanh, silu or gate",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"bias": torch.ones(4)},
        ValueError,
        "matmul: bias [4] is not contiguous with out's last dim, 3",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"residual": torch.ones(3, 3).double()},
        TypeError,
        "matmul: residual has dtype float64, out has float32",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"residual": torch.ones(3, 4)},
        ValueError,
        "matmul: residual [3, 4] is not of out's shape [3, 3] with a contiguous last dim",
    ),
    (
        ((3, 3), (3, 3), (3, 3)),
        {"activation": "gate"},
        ValueError,
        "matmul: activation 'gate' needs a residual",
    ),
    (((3, 3), (3, 3), (3, 3)), {"bias": [1.0]}, TypeError, "matmul: bias is a list, not an array"),
]


@pytest.mark.parametrize(("shapes", "options", "error", "words"), MISTAKES)
def test_mistakes_are_named(shapes, options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        kernels.matmul(*(torch.ones(shape) for shape in shapes), **options)


def test_an_output_that_cannot_be_written():
    x = torch.ones(3, 3)
    with pytest.raises(ValueError, match=r"out \[3, 3\] with strides \[1, 3\] is not contiguous"):
        kernels.matmul(x.clone().T, x, x)
    with pytest.raises(TypeError, match="out has dtype int64, not float32, float64 or bfloat16"):
        kernels.matmul(x.long(), x, x)
    with pytest.raises(TypeError, match="matmul: b has dtype float64, out has bfloat16"):
        kernels.matmul(x.bfloat16(), x, x.double())
    with pytest.raises(TypeError, match="matmul: a has dtype bfloat16, out has float64"):
        kernels.matmul(x.double(), x.bfloat16(), x.double())
