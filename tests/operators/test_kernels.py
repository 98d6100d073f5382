"""Every row of ops.toml has a torch kernel, a numpy reference and samples, and the two agree."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from samples import SAMPLES, Given, Sample  # noqa: E402

from gt.worker.pytorch import kernels  # noqa: E402  torch may be absent
from gt.worker.reference import kernels as reference  # noqa: E402  torch may be absent
from gt.worker.reference.values import Array, cast, dtype_name, widened  # noqa: E402

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

_TABLE = pathlib.Path(__file__).parent.parent.parent / "ops.toml"
_OPS = {row["name"]: row for row in tomllib.loads(_TABLE.read_text(encoding="utf-8"))["op"]}
_COMPUTED = [
    name
    for name, row in _OPS.items()
    if row["family"] not in ("generic", "control", "collective") and name != "upload"
]
# Rows that only torch computes: tests/operators/test_aten.py.
_GENERIC = [name for name, row in _OPS.items() if row["family"] == "generic"]
# Relative to the largest value of a result: sums in another order, polynomials of another degree.
_TOLERANCE = {"float64": 1e-12, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def _torch_value(operand: object) -> object:
    if isinstance(operand, list):
        return [_torch_value(one) for one in operand]
    if isinstance(operand, Given):
        return torch.from_numpy(np.array(operand.values)).to(getattr(torch, operand.dtype))
    return operand


def _numpy_value(operand: object) -> object:
    if isinstance(operand, list):
        return [_numpy_value(one) for one in operand]
    return cast(operand.values, operand.dtype) if isinstance(operand, Given) else operand


def _torch_attr(attr: object) -> object:
    return getattr(torch, attr) if attr in reference.DTYPES else attr


def _as_numpy(result: object) -> Array:
    if result.dtype == torch.bfloat16:
        return reference.from_bytes(
            result.contiguous().view(torch.uint16).numpy().tobytes(),
            "bfloat16",
            tuple(result.shape),
        )
    return result.numpy()


def _run(
    table: dict[str, object], name: str, operands: list[object], attrs: list[object]
) -> tuple[object, ...]:
    if isinstance(operands[0] if operands else None, (int, float)) and table is kernels.TORCH:
        result = kernels.NUMBER_FIRST.get(name, table[name])(*operands, *attrs)
    else:
        result = table[name](*operands, *attrs)
    return tuple(result) if _OPS[name].get("outputs", 1) > 1 else (result,)


def _check(name: str, sample: Sample) -> None:
    attrs = [_torch_attr(attr) for attr in sample.attrs]
    with torch.inference_mode():
        operands = [_torch_value(one) for one in sample.operands]
        actual = _run(kernels.TORCH, name, operands, attrs)
    with reference.quiet():
        operands = [_numpy_value(one) for one in sample.operands]
        expected = _run(reference.NUMPY, name, operands, list(sample.attrs))
    assert len(actual) == len(expected) == _OPS[name].get("outputs", 1)
    for left, right in zip(actual, expected, strict=True):
        _same(_as_numpy(left), right)


def _same(actual: Array, expected: Array) -> None:
    assert dtype_name(actual) == dtype_name(expected)
    assert actual.shape == expected.shape
    left, right = widened(actual).astype(np.float64), widened(expected).astype(np.float64)
    scale = np.max(np.abs(right[np.isfinite(right)]), initial=1.0)
    tolerance = _TOLERANCE.get(dtype_name(expected), 0.0)
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", _COMPUTED)
def test_row_has_everything(name: str) -> None:
    missing = [
        what
        for what, table in (
            ("kernel", kernels.TORCH),
            ("reference", reference.NUMPY),
            ("sample", SAMPLES),
        )
        if not table.get(name)
    ]
    assert not missing


def test_nothing_without_a_row() -> None:
    for table in (kernels.TORCH, kernels.NUMBER_FIRST, kernels.IN_PLACE, reference.NUMPY, SAMPLES):
        assert set(table) <= {*_COMPUTED, *_GENERIC}


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name in _COMPUTED for place in range(len(SAMPLES.get(name, [])))],
)
def test_numpy_agrees_with_torch(name: str, place: int) -> None:
    _check(name, SAMPLES[name][place])


@pytest.mark.parametrize(
    "name", [name for name in _COMPUTED if _OPS[name]["family"] not in ("view", "update")]
)
def test_results_lie_in_memory_of_their_own_size(name: str) -> None:
    """So much the worker counts for them; views with their operand, and of updates it asks."""
    sides = [
        (kernels.backend(torch.device("cpu")), kernels.TORCH, _torch_value, _torch_attr),
        (reference.backend(), reference.NUMPY, _numpy_value, lambda attr: attr),
    ]
    for backend, table, value, attribute in sides:
        for sample in SAMPLES[name]:
            with backend.guard():
                operands = [value(one) for one in sample.operands]
                results = _run(table, name, operands, [attribute(one) for one in sample.attrs])
            for result in results:
                assert backend.memory_bytes(result) == backend.length(result)


@pytest.mark.parametrize("name", reference.DTYPES)
def test_numpy_sends_a_dtype_as_it_is(name: str) -> None:
    """Data for other workers becomes contiguous, also in dtypes that numpy lacks."""
    value = cast(np.arange(6.0).reshape(2, 3), name).T
    sent = reference.backend().contiguous(value)
    assert dtype_name(sent) == name
    assert sent.flags.c_contiguous
    assert np.array_equal(sent, value)


def _strided(value: object) -> object:
    """The elements with a gap after each, as in a slice of a larger tensor."""
    if isinstance(value, list):
        return [_strided(one) for one in value]
    if not torch.is_tensor(value) or value.dim() == 0:
        return value
    return torch.stack([value, torch.full_like(value, 1)], dim=-1)[..., 0]


@pytest.mark.parametrize("name", [name for name in _COMPUTED if _OPS[name]["inputs"]])
def test_strides_change_no_value(name: str) -> None:
    for sample in SAMPLES[name]:
        attrs = [_torch_attr(attr) for attr in sample.attrs]
        operands = [_torch_value(one) for one in sample.operands]
        with torch.inference_mode():
            expected = _run(kernels.TORCH, name, operands, attrs)
            actual = _run(kernels.TORCH, name, [_strided(one) for one in operands], attrs)
        for left, right in zip(actual, expected, strict=True):
            dtype = str(right.dtype).removeprefix("torch.")
            bound = _TOLERANCE.get(dtype, 0.0)
            torch.testing.assert_close(left, right, rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.parametrize("name", sorted(kernels.IN_PLACE))
def test_in_place_gives_the_same_bits(name: str) -> None:
    """Overwriting an operand of the result's dtype and shape changes no bit of it."""
    tried = 0
    for sample in SAMPLES[name]:
        attrs = [_torch_attr(attr) for attr in sample.attrs]
        for overwrites, kernel, swapped in kernels.IN_PLACE[name]:
            with torch.inference_mode():
                expected = _run(
                    kernels.TORCH, name, [_torch_value(one) for one in sample.operands], attrs
                )
                operands = [_torch_value(one) for one in sample.operands]
                taken = [one for place, one in enumerate(operands) if overwrites >> place & 1]
                metas = [(one.dtype, one.shape) for one in expected]
                if not all(
                    torch.is_tensor(one) and (one.dtype, one.shape) in metas for one in taken
                ):
                    continue
                order = [*reversed(operands)] if swapped else operands
                if not torch.is_tensor(order[0]):
                    continue
                result = kernel(*order, *attrs)
                actual = tuple(result) if _OPS[name].get("outputs", 1) > 1 else (result,)
                for left, right in zip(actual, expected, strict=True):
                    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)
                assert actual[0].data_ptr() in [one.data_ptr() for one in taken]
                tried += 1
    assert tried > 0


def _floats(*size: int) -> Given:
    return Given(np.zeros(size), "float32")


def _ints(*numbers: int) -> Given:
    return Given(np.array(numbers), "int64")


_OUTSIDE: list[tuple[str, list[object], list[object]]] = [
    ("gather", [_floats(3), _ints(1, 5)], [0]),
    ("gather", [_floats(3), _ints(-1)], [0]),
    ("gather", [_floats(2, 3), Given(np.array([[0, 1], [0, 7]]), "int64")], [-1]),
    ("gather", [_floats(), _ints(5)], [0]),
    ("scatter", [_floats(3), _ints(5), _floats(1)], [0]),
    ("scatter_add", [_floats(3), _ints(-2), _floats(1)], [0]),
    ("index_select", [_floats(3), _ints(5)], [0]),
    ("index_select", [_floats(3, 2), _ints(-1)], [0]),
    ("index_select", [_floats(2, 3, 4), _ints(5)], [1]),
    ("index_select", [_floats(2, 3, 4), _ints(5)], [-3]),
    ("index_add", [_floats(3), _ints(5), _floats(1)], [0]),
    ("index_add", [_floats(3, 2), _ints(-1), _floats(1, 2)], [0]),
    ("index", [_floats(3, 4), [_ints(1), _ints(9)]], []),
    ("index", [_floats(3, 4), [None, _ints(-5)]], []),
    ("index_put", [_floats(3), _floats(1), [_ints(5)]], [False]),
    ("index_put", [_floats(3), _floats(1), [_ints(-5)]], [True]),
    ("embedding", [_floats(3, 2), _ints(5)], [None]),
    ("embedding", [_floats(3, 2), _ints(-1)], [None]),
    ("nll_loss", [_floats(2, 3), _ints(1, 7), None], ["mean", -100]),
    ("nll_loss", [_floats(2, 3), _ints(1, -3), None], ["none", -100]),
]


@pytest.mark.parametrize(
    ("name", "operands", "attrs"), _OUTSIDE, ids=[f"{row[0]}-{i}" for i, row in enumerate(_OUTSIDE)]
)
def test_an_index_outside_is_pytorchs_mistake(
    name: str, operands: list[object], attrs: list[object]
) -> None:
    with torch.inference_mode(), pytest.raises(Exception) as theirs:  # noqa: PT011
        _run(kernels.TORCH, name, [_torch_value(one) for one in operands], attrs)
    with reference.quiet(), pytest.raises(theirs.type) as ours:
        _run(reference.NUMPY, name, [_numpy_value(one) for one in operands], attrs)
    assert ours.type is theirs.type
    assert str(ours.value) == str(theirs.value)


def test_the_variance_of_nothing_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    # A worker's shard of a cut tensor may be empty; whoever computes with the whole is not told so.
    x = torch.zeros(0, 6)
    for dim, keepdim, shape in [([1], False, (0,)), ([-1], True, (0, 1))]:
        out = kernels.TORCH["var"](x, dim, 1.0, keepdim)
        assert tuple(out.shape) == shape
    assert not recwarn.list
