"""Rows that read, write and add at places, in the native backend: by the kernel, not numpy."""

from collections.abc import Callable

import numpy as np
import pytest

from gt.worker.native import indexing
from gt.worker.reference import kernels as reference
from gt.worker.reference.values import Array

torch = pytest.importorskip("torch")

QUICK = indexing.kernels()
ADDING = ("index_add", "index_put")
PLACED = ("gather", "scatter", "scatter_add", "embedding", "index_select")
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
    for name in ADDING + PLACED:
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


@pytest.mark.usefixtures("without_numpy")
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("size", "count"), [*SIZES, ((3, 1, 2, 5), 4), ((2, 3, 1), 1)])
def test_elements_are_read_and_written_along_each_dimension(
    size: tuple[int, ...], count: int, whole: bool
) -> None:
    x = _floats(*size)
    before = x.copy()
    for dim in range(-len(size), len(size)):
        sizes = [one if whole else max(1, one - 1) for one in size]
        sizes[dim] = count
        index = _places(size[dim], *sizes)
        wanted = torch.tensor(x).gather(dim, torch.tensor(index))
        assert np.array_equal(QUICK["gather"](x, index, dim), wanted)
        turned = np.asfortranarray(index)
        assert np.array_equal(QUICK["gather"](x, turned, dim), wanted)
        # No place twice: which of two PyTorch keeps is not said.
        sizes[dim] = size[dim]
        index = _floats(*sizes).argsort(dim).take(range(min(count, size[dim])), dim)
        source = _floats(*[one + 1 for one in index.shape])
        wanted = torch.tensor(x).scatter(dim, torch.tensor(index), torch.tensor(source))
        assert np.array_equal(QUICK["scatter"](x, index, source, dim), wanted)
    assert (x == before).all()


@pytest.mark.usefixtures("without_numpy")
@pytest.mark.parametrize("size", [(7, 3), (65, 16), (4, 2, 3), (9,), (3, 1)])
def test_rows_are_taken(size: tuple[int, ...]) -> None:
    x = _floats(*size)
    for shape in ((5,), (1,), (31,)):
        index = _places(size[0], *shape)
        wanted = x[index]
        for dim in (0, -len(size)):
            assert np.array_equal(QUICK["index_select"](x, index, dim), wanted)
        for grid in (index, index[::-1], index.reshape(1, -1, 1), index[:1].reshape(())):
            if len(size) == 2:
                assert np.array_equal(QUICK["embedding"](x, grid, None), x[grid])


def test_mistakes_are_those_of_the_numpy_backend() -> None:
    x, source = _floats(4, 3), _floats(2, 3)
    for name, arguments in (
        ("index_add", (x, np.array([0, 4]), source, 0)),
        ("index_put", (x, source, [np.array([0, 4]), None], True)),
        ("scatter_add", (x, np.array([[0, 4, 1]]), source, 0)),
        ("scatter", (x, np.array([[0, -1, 1]]), source, 0)),
        ("gather", (x, np.array([[0], [3]]), 1)),
        ("embedding", (x, np.array([[0, 4]]), None)),
        ("index_select", (x, np.array([-1, 0]), 0)),
        ("index_select", (x, np.array([3, 0]), 1)),
    ):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            reference.NUMPY[name](*arguments)
        with pytest.raises(type(expected.value)) as found:
            QUICK[name](*arguments)
        assert str(found.value) == str(expected.value)
