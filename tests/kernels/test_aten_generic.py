"""Operators without a row, and their gradients, have in C++ every bit that they have in Python."""

from __future__ import annotations

import math
import random
import warnings
import zlib
from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402
from test_direct_backward import SAMPLES  # noqa: E402

from gt.aten import arguments, schemas  # noqa: E402
from gt.aten.backward import lines, saved_results  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.pytorch import generic as torch_aten  # noqa: E402
from gt.worker.pytorch import own as torch_own  # noqa: E402

DRAWS = 4  # of each overload
SHAPES = [(), (3,), (2, 3), (4, 4), (2, 3, 4), (2, 3, 6, 6)]
FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.bool, torch.complex64]

# Operators that Python runs: their condition compares two operands, or GT has own functions.
IN_PYTHON = {"convolution", "avg_pool1d", *torch_own.COMPLEX, *torch_own.FORWARD}


def attributes(
    overload: str, text: str, wanted: list[int], results: Sequence[torch.Tensor]
) -> list[object]:
    """Attributes of a generic row."""
    stated: list[int] = []
    for one in results:
        stated += [torch_aten.DTYPES.index(one.dtype), one.dim(), *one.shape]
    return [overload, text, wanted, stated, True, torch.float32, None, None, None, None]


class Draw:
    """Arguments of a schema as a text, and their operands; most operands have one shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.operands: list[torch.Tensor] = []
        self.shape = self.random.choice(SHAPES)
        self.dtype = self.random.choice(DTYPES)

    def tensor(self) -> str:
        draw = self.random
        shape = self.shape if draw.random() < 0.8 else draw.choice(SHAPES)
        dtype = self.dtype if draw.random() < 0.9 else draw.choice(DTYPES)
        numbers = [draw.choice([0, 1, 2, 0.5, 1.5]) for _ in range(math.prod(shape))]
        x = torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(shape)
        if x.dim() > 1 and draw.random() < 0.3:
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        self.operands.append(x)
        return f"_{len(self.operands) - 1}"

    def text(self, kind: str) -> str:
        draw = self.random
        if kind.endswith("?") and draw.random() < 0.5:
            return "None"
        kind = kind.rstrip("?")
        if kind.endswith("]"):
            item, _, size = kind[:-1].partition("[")
            count = int(size) if size else draw.randrange(1, 4)
            return f"[{', '.join(self.text(item) for _ in range(count))}]"
        if kind == "Tensor":
            return self.tensor()
        choices: dict[str, list[object]] = {
            "int": [0, 1, 2, -1],
            "float": [0.5, 1.0, 2.0, -1.5],
            "Scalar": [0, 1, 2.5, True, 1j],
            "bool": [True, False],
            "str": ["mean", "sum", "fro", "linear", "none", "reflect", "amax"],
        }
        return arguments.literal(draw.choice(choices.get(kind, [None])))


@pytest.mark.timeout(300)  # ten seconds where nothing else runs
def test_every_overload_gives_the_same_bits(aten_helper: Trial) -> None:  # noqa: F811
    ran: set[str] = set()
    for overload in sorted(schemas.overloads_allowed() - torch_own.FORWARD.keys()):
        (schema,) = (
            one for one in schemas.of(overload.partition(".")[0]) if one.overload == overload
        )
        for place in range(DRAWS):
            draw = Draw(zlib.crc32(overload.encode()) + place)
            words = [
                f"{one.name}={draw.text(one.type)}" if one.is_keyword else draw.text(one.type)
                for one in schema.arguments
            ]
            if same_bits(aten_helper, overload, ", ".join(words), draw.operands):
                ran.add(overload)
    # Others want operands that are rarely drawn, or give something else than tensors.
    assert len(ran) > 400, len(ran)


def same_bits(helper: Trial, overload: str, text: str, operands: list[torch.Tensor]) -> bool:
    """True where C++ ran it; asserts that its bits equal Python's, which must run it too."""
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        try:
            torch.manual_seed(0)
            plain = torch_aten.operator(overload, text)(operands)[0]
            stated = attributes(overload, text, [], plain)
            torch.manual_seed(0)
            expected = torch_aten._aten(operands, *stated)
        except Exception:  # noqa: BLE001 - the arguments fit nothing
            return False
        torch.manual_seed(0)
        actual = helper.run("aten", [operands], stated)
        if actual is None:
            return False
        # Values are compared unless the result is uninitialized.
        if "empty" not in overload:
            assert bits(actual) == bits(expected), (overload, text)
        assert [x.stride() for x in actual] == [x.stride() for x in expected]
        return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("overload", sorted(SAMPLES.keys() - IN_PYTHON))
def test_gradients_have_the_same_bits(
    overload: str,
    dtype: torch.dtype,
    aten_helper: Trial,  # noqa: F811
) -> None:
    generator = torch.Generator().manual_seed(0)
    ran = 0
    for text, *shapes in SAMPLES[overload]:
        with torch.inference_mode():
            operands = [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]
            results = torch_aten.operator(overload, text)(operands)[0]
            wanted = list(range(min(len(operands), len(lines()[overload].operands))))
            given = [*operands, torch.rand(results[0].shape, generator=generator, dtype=dtype)]
            given += [None] * (len(results) - 1)
            given += [results[place] for place in saved_results(overload)]
            stated = attributes(overload, text, [*wanted, -1], [operands[at] for at in wanted])
            actual = aten_helper.run("aten_vjp", [given], stated)
            if actual is not None:
                ran += 1
                assert bits(actual) == bits(torch_aten._aten(given, *stated))
    assert ran, "no sample runs in C++"


@pytest.mark.parametrize(
    ("overload", "text", "sizes"),
    [
        ("lgamma", "_0", [3, 2]),  # other sizes than the result's
        ("linalg_slogdet", "_0", [3]),  # fewer results
        ("real", "_0", [3]),
    ],
)
def test_what_is_not_as_stated_runs_in_python(
    overload: str,
    text: str,
    sizes: list[int],
    aten_helper: Trial,  # noqa: F811
) -> None:
    stated = attributes(overload, text, [], [torch.empty(sizes)])
    with torch.inference_mode():
        assert aten_helper.run("aten", [[torch.eye(2)]], stated) is None


@pytest.mark.parametrize(
    ("overload", "text"),
    [("atleast_1d", "_0"), ("conj_physical", "_0"), ("sum_to_size", "_0, [2, 3]")],
)
def test_results_have_memory_of_their_own(
    overload: str,
    text: str,
    aten_helper: Trial,  # noqa: F811
) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with torch.inference_mode():
        (plain,) = torch_aten.operator(overload, text)([x])[0]
        assert plain.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        made = aten_helper.run("aten", [[x]], attributes(overload, text, [], [x]))
    assert made is not None
    assert made[0].untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert torch.equal(made[0], x)


def test_a_changing_number_is_no_part_of_a_program(aten_helper: Trial) -> None:  # noqa: F811
    x = torch.arange(12.0).reshape(3, 4)
    bind = aten_helper.binder.bind
    for row, attributes_of_row, changing in (
        ("select", [0, 2], 0b10),
        ("slice", [1, 1, 3, 1], 0b110),
    ):
        bound = bind(row, [1], [], 0, attributes_of_row)
        assert bound is not None
        assert bound[1] == changing
        aten_helper.helper.gt_program_free(bound[0])
    for place in (0, 2, -1):
        with torch.inference_mode():
            made = aten_helper.run("select", [x], [0, place])
            assert made is not None
            assert torch.equal(made[0], x[place])
