"""Rows that add at places, in the native backend: PyTorch's sums, by the kernel, not numpy."""

from collections.abc import Callable

import numpy as np
import pytest

from gt.worker import native_indexing, reference
from gt.worker.reference_values import Array

torch = pytest.importorskip("torch")

QUICK = native_indexing.kernels()
SIZES = [((7, 3), 50), ((5,), 33), ((4, 2, 3), 9)]


def _floats(*size: int) -> Array:
    return np.random.default_rng(sum(size)).standard_normal(size).astype(np.float32)


def _places(count: int, *size: int) -> Array:
    return np.random.default_rng(count).integers(0, count, size)


def _assert_close(ours: object, theirs: "torch.Tensor") -> None:
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.fixture
def without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a row is left to the numpy backend."""
    for name in ("index_add", "index_put", "scatter_add"):
        monkeypatch.setitem(reference.NUMPY, name, _refused(name))


def _refused(name: str) -> Callable[..., object]:
    def refused(*_arguments: object) -> object:
        raise AssertionError(f"{name} is left to numpy")

    return refused


@pytest.mark.usefixtures("without_numpy")
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_rows_are_added_at_places(size: tuple[int, ...], count: int) -> None:
    x, source = _floats(*size), _floats(count, *size[1:])
    before = x.copy()
    places = _places(size[0], count)
    given = torch.tensor(x), torch.tensor(places), torch.tensor(source)
    _assert_close(QUICK["index_add"](x, places, source, 0), given[0].index_add(0, *given[1:]))
    indices = [places, *[None] * (len(size) - 1)]
    wanted = given[0].index_put((given[1],), given[2], accumulate=True)
    _assert_close(QUICK["index_put"](x, source, indices, True), wanted)
    grid, many = places[: count // 3 * 3].reshape(3, -1), source[: count // 3 * 3]
    many = many.reshape(*grid.shape, *size[1:])
    wanted = given[0].index_put((torch.tensor(grid),), torch.tensor(many), accumulate=True)
    _assert_close(QUICK["index_put"](x, many, [grid, *indices[1:]], True), wanted)
    assert (x == before).all()


@pytest.mark.usefixtures("without_numpy")
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_elements_are_added_along_each_dimension(size: tuple[int, ...], count: int) -> None:
    x = _floats(*size)
    for dim in range(-len(size), len(size)):
        sizes = [max(1, one - 1) for one in size]
        sizes[dim] = count
        index, source = _places(size[dim], *sizes), _floats(*[one + 1 for one in sizes])
        wanted = torch.tensor(x).scatter_add(dim, torch.tensor(index), torch.tensor(source))
        _assert_close(QUICK["scatter_add"](x, index, source, dim), wanted)


def test_mistakes_are_those_of_the_numpy_backend() -> None:
    x, source = _floats(4, 3), _floats(2, 3)
    for name, arguments in (
        ("index_add", (x, np.array([0, 4]), source, 0)),
        ("index_put", (x, source, [np.array([0, 4]), None], True)),
        ("scatter_add", (x, np.array([[0, 4, 1]]), source, 0)),
    ):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            reference.NUMPY[name](*arguments)
        with pytest.raises(type(expected.value)) as found:
            QUICK[name](*arguments)
        assert str(found.value) == str(expected.value)
