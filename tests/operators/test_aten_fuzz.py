"""Random arguments to every operator that an instruction may name: a result or an error of GT's
with a text, and a worker that goes on. A kernel that reads beside its operands would end it.
"""

import math
import random

import pytest
import torch
from harness.convert import DTYPES, to_gt
from spread_session import workers

import gt
from gt.aten import call, schemas

DRAWS = 3  # of each overload
SHAPES = [(), (0,), (3,), (2, 3), (2, 3, 4), (1, 2, 4, 4), (1, 2, 3, 4, 4), (4, 4)]
WHOLE = [0, 1, 2, 3, -1, -2, 5, 7, -100, 2**31, 2**62, -(2**63)]
INEXACT = [0.0, 1.0, -1.0, 0.5, 1e300, math.nan, math.inf]
WORDS = [
    "mean",
    "sum",
    "fro",
    "linear",
    "none",
    "L",
    "reflect",
    "",
    "\x00",
    "valid",
    "amax",
    "prod",
]


class Arguments:
    """Draws arguments of a schema; operands often have one shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shapes: list[tuple[int, ...]] = []

    def tensor(self) -> gt.Tensor:
        dtype = self.random.choice(list(DTYPES)) if self.random.random() < 0.6 else torch.float32
        shape = self.random.choice(SHAPES)
        if self.shapes and self.random.random() < 0.3:
            shape = self.shapes[0]
        self.shapes.append(shape)
        numbers = self.random.choices([*range(-3, 5), *INEXACT], k=math.prod(shape))
        if not dtype.is_floating_point and not dtype.is_complex:
            numbers = [int(x) if abs(x) < 9 else 100 for x in numbers]
        if dtype in (torch.uint8, torch.bool):
            numbers = [abs(x) for x in numbers]
        return to_gt(torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(shape))

    def of(self, kind: str) -> object:
        if kind.endswith("?") and self.random.random() < 0.5:
            return None
        kind = kind.rstrip("?")
        if kind.endswith("]"):
            item, _, size = kind[:-1].partition("[")
            is_sized = size and self.random.random() < 0.8
            count = int(size) if is_sized else self.random.randrange(4)
            return [self.of(item) for _ in range(count)]
        if kind == "Tensor":
            return self.tensor()
        choices: dict[str, list[object]] = {
            "int": WHOLE if self.random.random() < 0.3 else [0, 1, 2, -1, 3],
            "float": INEXACT,
            "Scalar": [0, 1, -1, 2.5, True, math.nan, 1j, 2**62],
            "bool": [True, False],
            "str": WORDS,
            "ScalarType": list(DTYPES.values()),
        }
        return self.random.choice(choices.get(kind, [None]))


def called(overload: str, seed: int) -> None:
    name, _, variant = overload.partition(".")
    (schema,) = (one for one in schemas.of(name) if one.overload == overload)
    draw = Arguments(seed)
    args = [draw.of(x.type) for x in schema.arguments if not x.is_keyword]
    named = {x.name: draw.of(x.type) for x in schema.arguments if x.is_keyword}
    found = call.call(f"{name}.{variant or 'default'}", args, named)
    for x in found if isinstance(found, tuple) else (found,):
        if x.numel() < 1 << 20:
            gt._core.read_bytes(x)


def outcome(overload: str, seed: int) -> str:
    try:
        called(overload, seed)
    except gt.Error as error:
        if not str(error):
            raise
        return "errors"
    return "results"


# A result without elements is not read, whether or not it failed.
@pytest.mark.filterwarnings("ignore::gt.errors.UnreadFailureWarning")
@pytest.mark.timeout(300)
def test_a_worker_survives_random_arguments() -> None:
    outcomes = {"results": 0, "errors": 0}
    with workers(1):
        for overload in sorted(schemas.overloads_allowed()):
            for draw in range(DRAWS):
                seed = hash_of(overload) + draw
                outcomes[outcome(overload, seed)] += 1
            assert (gt.ones(2) + 1).tolist() == [2.0, 2.0], f"{overload}: the worker is gone"
    assert outcomes["results"] > 200 < outcomes["errors"], outcomes


def hash_of(text: str) -> int:
    """A hash that is equal in every process."""
    return sum(ord(letter) * 31**place for place, letter in enumerate(text)) % (1 << 30)
