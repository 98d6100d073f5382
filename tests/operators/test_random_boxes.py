"""Every random row draws any box of a tensor with the bits that the whole tensor has there."""

import itertools
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gt  # noqa: E402
from gt import _core  # noqa: E402
from gt.worker.pytorch import creation, kernels  # noqa: E402
from gt.worker.reference import kernels as reference  # noqa: E402
from gt.worker.reference.values import cast  # noqa: E402

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

SEED, DRAW = -0x299F31D0A4093822, 3
WHOLE = (7, 3, 10)
# Cuts of each dim of the whole: even, uneven, with empty shards, several dims at once.
CUTS = [
    ([], [], [5]),
    ([1, 6], [], []),
    ([], [0, 2, 2, 3], []),
    ([0, 3, 7], [1], [1, 9, 10]),
    ([2, 4, 6], [3], [3, 6]),
]
DRAWS = {"uniform": (-1.0, 2.0), "normal": (0.5, 2.0), "randint": (0, 100), "bernoulli": (0.4,)}
CASES = [  # random_like calls these: samples and placements show that
    *itertools.product(("uniform", "normal", "dropout"), ("float32", "float64", "bfloat16")),
    *itertools.product(["randint"], ("int64", "int32", "uint8", "float32")),
    *itertools.product(["bernoulli"], ("bool", "int64", "float64", "bfloat16")),
]
OPERAND = np.arange(210.0).reshape(WHOLE) / 64 - 1.5


def _size(box):
    return tuple(one.stop - one.start for one in box)


def _place(box):
    """The attributes that tell a box of the whole."""
    return WHOLE, tuple(one.start for one in box)


def _bytes(flat, width, box):
    """Bytes of a box, `width` of them in place of each element of the last dim."""
    *outer, last = _size(box)
    return flat.reshape(*outer, last * width)


def _by_torch(name, dtype, box, place):
    made_in = getattr(torch, dtype)
    if name == "dropout":
        values = torch.from_numpy(OPERAND)[box].to(made_in)
        results = kernels.TORCH[name](values, 0.3, SEED, DRAW, *place)
    else:
        attrs = (_size(box), made_in, *DRAWS[name], SEED, DRAW)
        results = [kernels.TORCH[name](*attrs, *place)]
    return [
        _bytes(one.flatten().view(torch.uint8).numpy(), one.element_size(), box) for one in results
    ]


def _by_numpy(name, dtype, box, place):
    if name == "dropout":
        values = cast(OPERAND[box], dtype)
        results = reference.NUMPY[name](values, 0.3, SEED, DRAW, *place)
    else:
        results = [reference.NUMPY[name](_size(box), dtype, *DRAWS[name], SEED, DRAW, *place)]
    return [_bytes(np.frombuffer(one.tobytes(), np.uint8), one.itemsize, box) for one in results]


def _by_gt(name, dtype, box, place):
    """Values that a client gets: through the rules, the wire and a worker."""
    named = dict(zip(("global", "start"), place, strict=False), seed=SEED, draw=DRAW)
    if name == "dropout":
        values = gt.tensor(OPERAND[box], dtype=getattr(gt, dtype))
        results = _core.call(name, values, p=0.3, **named)
    else:
        limits = {"uniform": ("low", "high"), "normal": ("mean", "std"), "bernoulli": ("p",)}
        keys = limits.get(name, ("low", "high"))
        named |= dict(zip(keys, DRAWS[name], strict=True))
        results = [_core.call(name, size=_size(box), dtype=getattr(gt, dtype), **named)]
    return [
        _bytes(np.frombuffer(_core.read_bytes(one), np.uint8), one.element_size(), box)
        for one in results
    ]


def _boxes(cuts):
    """Slices of the whole, a tuple for each box."""
    edges = [[0, *cut, size] for cut, size in zip(cuts, WHOLE, strict=True)]
    return itertools.product(*[[slice(*ends) for ends in itertools.pairwise(e)] for e in edges])


def _check_boxes(draw, name, dtype, cuts):
    """Boxes put together are the whole, byte for byte; each byte comes from one box."""
    wholes = draw(name, dtype, tuple(slice(0, size) for size in WHOLE), ())
    results = [np.zeros_like(whole) for whole in wholes]
    written = [np.zeros_like(whole) for whole in wholes]
    for box in _boxes(cuts):
        shards = draw(name, dtype, box, _place(box))
        for whole, out, count, shard in zip(wholes, results, written, shards, strict=True):
            width = whole.shape[-1] // WHOLE[-1]
            bytes_ = (*box[:-1], slice(box[-1].start * width, box[-1].stop * width))
            out[bytes_] = shard
            count[bytes_] += 1
    for whole, out, count in zip(wholes, results, written, strict=True):
        assert whole.size >= OPERAND.size
        assert (count == 1).all()
        assert (out == whole).all(), (name, dtype, cuts)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("draw", [_by_torch, _by_numpy, _by_gt])
def test_boxes_are_the_whole(draw, name, dtype, cuts):
    _check_boxes(draw, name, dtype, cuts)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_boxes_without_own_kernels(monkeypatch, name, dtype):
    monkeypatch.setattr(creation, "_kernels", None)
    _check_boxes(_by_torch, name, dtype, CUTS[3])


def test_every_random_row_is_here():
    file = Path(__file__).parent.parent.parent / "ops.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    drawn = {row["name"] for row in table["op"] if row["family"] == "random"}
    assert drawn == {name for name, _ in CASES} | {"random_like"}


def test_a_scalar_is_a_box():
    whole = _core.call(
        "normal", size=(), dtype=gt.float32, mean=0.0, std=1.0, seed=1, draw=2,
        **{"global": (), "start": ()},
    )  # fmt: skip
    plain = _core.call("normal", size=(), dtype=gt.float32, mean=0.0, std=1.0, seed=1, draw=2)
    assert whole.item() == plain.item()


def test_a_box_outside_is_refused_at_the_call():
    with pytest.raises(gt.ShapeError, match="is outside of a tensor of shape"):
        _core.call("dropout", gt.zeros(4), p=0.5, seed=1, draw=2, **{"global": [5], "start": [2]})
