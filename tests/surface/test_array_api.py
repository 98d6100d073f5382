"""gt.array_api beside array_api_strict, the standard's own reference: names, arguments, results."""

import inspect

import array_api_strict as strict
import numpy as np
import pytest

import gt
from gt import array_api as ours

LACKING = {"uint16", "uint32", "uint64", "isin", "broadcast_shapes"}
A = [[3.0, -1.5, 2.0], [0.5, 4.0, -2.0]]
B = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
N = [[3, 1, 2], [2, 2, 0]]
Q = [[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.0], [0.0, 5.0]]]
ONE = [
    "abs",
    "ceil",
    "exp",
    "floor",
    "isfinite",
    "negative",
    "positive",
    "round",
    "sign",
    "signbit",
]
ONE += ["sin", "square", "tanh", "trunc", "isnan", "atan", "asinh", "expm1"]
TWO = ["add", "subtract", "multiply", "divide", "pow", "atan2", "copysign", "equal", "not_equal"]
TWO += ["floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp"]
TWO += ["maximum", "minimum", "nextafter", "remainder"]
REDUCTIONS = ["sum", "prod", "max", "min", "all", "any", "count_nonzero"]
LINES = [
    *(f"m.{name}(a)" for name in ONE),
    *(f"m.{name}(a if '{name}' != 'pow' else b, b)" for name in TWO),
    *(f"m.{name}(b)" for name in ("log", "log1p", "log2", "log10", "sqrt", "reciprocal")),
    *(f"m.bitwise_{name}(i, i)" for name in ("and", "or", "xor", "left_shift", "right_shift")),
    *(f"m.logical_{name}(i > 1, i > 2)" for name in ("and", "or", "xor")),
    *(
        f"m.{name}({x}, axis={axis}, keepdims={keep})"
        for name in [*REDUCTIONS, "mean", "std", "var"]
        for x in ("a", "i")[: 1 + (name in REDUCTIONS)]
        for axis in (None, 0, -1, (0, 1))
        for keep in (False, True)
    ),
    *(
        f"m.arg{name}(a, axis={axis}, keepdims=True)"
        for name in ("max", "min")
        for axis in (None, 1)
    ),
]
LINES += """
m.std(a, correction=1.0)
m.sum(i, dtype=m.int32)
m.cumulative_sum(a, axis=1)
m.cumulative_sum(i, axis=0, include_initial=True)
m.cumulative_prod(a, axis=1, include_initial=True)
m.diff(a, axis=0)
m.diff(a, n=2)
m.bitwise_invert(i)
m.logical_not(i > 1)
m.clip(a, 0, 2)
m.clip(a, max=1.0)
m.clip(a)
m.where(a > 0, a, b)
m.where(a > 0, a, 0.0)
m.arange(5)
m.arange(1, 2, 0.25)
m.arange(5, 0)
m.arange(4.0)
m.linspace(0, 1, 5)
m.linspace(0, 1, 5, endpoint=False)
m.eye(3)
m.eye(2, 4, k=1)
m.eye(3, k=-1, dtype=m.int32)
m.zeros((2, 3))
m.zeros(3)
m.ones((2,), dtype=m.int64)
m.full((2,), 3)
m.full((2,), 3.5)
m.full(2, True)
m.full_like(a, 2)
m.zeros_like(i)
m.ones_like(a)
m.meshgrid(a[0, :], b[1, :])
m.meshgrid(a[0, :], b[1, :2], indexing='ij')
m.tril(a)
m.tril(a, k=1)
m.triu(a, k=-1)
m.asarray([1, 2])
m.asarray([1.5])
m.broadcast_to(a, (2, 2, 3))
m.broadcast_arrays(a, b[:1, :])
m.concat((a, b))
m.concat((a, b), axis=1)
m.concat((a, b), axis=None)
m.expand_dims(a, axis=0)
m.expand_dims(a, axis=-1)
m.expand_dims(a, axis=9)
m.flip(a)
m.flip(a, axis=1)
m.moveaxis(a, 0, 1)
m.permute_dims(a, (1, 0))
m.repeat(a, 2)
m.repeat(a, 2, axis=1)
m.repeat(a, m.asarray([1, 2]), axis=0)
m.reshape(a, (3, 2))
m.reshape(a, (-1,))
m.roll(a, 1)
m.roll(a, (1, 1), axis=(0, 1))
m.squeeze(a[:1, :], 0)
m.squeeze(a, 0)
m.stack((a, b), axis=1)
m.tile(a, (2, 1))
m.unstack(a)
m.unstack(a, axis=1)
m.argsort(a)
m.argsort(i, descending=True)
m.sort(a, axis=0)
m.sort(a, descending=True)
m.nonzero(i)
m.searchsorted(b[0, :], a[0, :])
m.searchsorted(b[0, :], b[0, :], side='right')
m.take(a, m.asarray([1, 0]), axis=1)
m.take(a[0, :], m.asarray([2, 0]))
m.take_along_axis(a, m.asarray([[0, 1, 1], [2, 0, 0]]))
m.unique_values(i)
m.unique_counts(i)
m.unique_inverse(i)
m.matmul(a, b.T)
m.matrix_transpose(a)
m.tensordot(a, b, axes=2)
m.tensordot(a, b, axes=((1,), (1,)))
m.vecdot(a, b)
m.astype(a, m.int32)
m.astype(i, m.float32)
m.result_type(i, m.int8)
m.can_cast(m.int32, m.int64)
m.can_cast(m.float64, m.float32)
m.isdtype(m.float32, 'real floating')
m.isdtype(m.int8, ('bool', 'integral'))
m.isdtype(m.int8, m.int8)
m.isdtype(m.int8, 'whole')
m.linalg.cholesky(q)
m.linalg.cholesky(q, upper=True)
m.linalg.det(q)
m.linalg.inv(q)
m.linalg.diagonal(q)
m.linalg.diagonal(q, offset=1)
m.linalg.trace(q)
m.linalg.matrix_norm(q)
m.linalg.matrix_norm(q, ord='nuc', keepdims=True)
m.linalg.matrix_power(q, 3)
m.linalg.matrix_rank(q)
m.linalg.outer(a[0, :], b[0, :])
m.linalg.pinv(q)
m.linalg.solve(q, q)
m.linalg.svdvals(q)
m.linalg.slogdet(q).logabsdet
m.linalg.eigvalsh(q)
m.linalg.eigh(q).eigenvalues
m.linalg.svd(q).S
m.linalg.qr(q).R ** 2
m.linalg.vector_norm(a)
m.linalg.vector_norm(a, axis=0, ord=1)
m.linalg.vector_norm(a, axis=(0, 1), keepdims=True)
m.linalg.cross(a, b)
m.fft.fftfreq(5, d=0.5)
m.fft.rfftfreq(6)
m.fft.fftshift(a)
m.fft.ifftshift(a, axes=0)
m.e
m.pi
m.finfo(m.float32).eps
m.iinfo(m.int8).max
""".strip().splitlines()


def plain(value):
    """Lists and numbers, with the dtype's name."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, gt.Tensor):
        return np.asarray(value.numpy())
    return np.asarray(value) if hasattr(value, "__array__") or hasattr(value, "shape") else value


def outcome(m, line):
    given = {"m": m, "a": m.asarray(A), "b": m.asarray(B), "i": m.asarray(N), "q": m.asarray(Q)}
    if m is strict:  # whose default is float64
        given |= {name: m.astype(given[name], m.float32) for name in "abq"}
    try:
        return plain(eval(line, given))
    except (ValueError, IndexError, TypeError) as error:
        return f"refused: {error}"[:7]


@pytest.mark.parametrize("line", LINES)
def test_results_are_those_of_the_standard(line):
    mine, theirs = outcome(ours, line), outcome(strict, line)
    compare(mine, theirs)


def compare(mine, theirs):
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for pair in zip(mine, theirs, strict=True):
            compare(*pair)
    elif isinstance(theirs, np.ndarray):
        assert mine.shape == theirs.shape
        assert mine.dtype.kind == theirs.dtype.kind
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)
    elif isinstance(theirs, (bool, int, float, str)):
        assert mine == pytest.approx(theirs) if isinstance(theirs, float) else mine == theirs
    else:  # a dtype
        assert str(mine).rpartition(".")[2] == str(theirs).rpartition(".")[2]


@pytest.mark.parametrize("space", ["", "linalg", "fft"])
def test_names_and_arguments_are_those_of_the_standard(space):
    mine, theirs = (getattr(m, space) if space else m for m in (ours, strict))
    expected = {name for name in theirs.__all__ if not name.startswith("_")} - LACKING
    expected -= {name for name in expected if "flags" in name.lower()} | {"Device"}
    if not hasattr(gt, "complex64"):
        expected -= {"complex64", "complex128", "real", "imag", "conj", "eig", "eigvals"}
    missing = sorted(name for name in expected if not hasattr(mine, name))
    assert not missing, missing
    assert expected <= set(dir(mine)) | {"eig", "eigvals"}
    for name in sorted(expected):
        function = getattr(mine, name)
        if inspect.isfunction(function) and function.__module__.startswith("gt.array_api"):
            wanted = inspect.signature(getattr(theirs, name)).parameters
            assert set(wanted) <= set(inspect.signature(function).parameters), name


def test_a_tensor_gives_its_namespace():
    x = gt.ones(2)
    assert x.__array_namespace__() is ours
    assert x.__array_namespace__(api_version="2023.12") is ours
    with pytest.raises(ValueError, match="edition 2099"):
        x.__array_namespace__(api_version="2099.12")
    info = ours.__array_namespace_info__()
    assert info.dtypes(kind="bool") == {"bool": gt.bool}
    assert info.default_dtypes()["real floating"] == gt.float32
    assert info.capabilities()["boolean indexing"]
    assert str(info.default_device()) == "gt"


def test_where_each_value_occurs_first():
    values, indices, inverse, counts = ours.unique_all(gt.tensor(N))
    assert values.tolist() == [0, 1, 2, 3]
    assert indices.tolist() == [5, 1, 2, 0]
    assert inverse.tolist() == [[3, 1, 2], [2, 2, 0]]
    assert counts.tolist() == [1, 1, 3, 1]
