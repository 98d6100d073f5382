"""einsum of all pairs of dtypes, of every kind of equation: dtypes, values and refusals."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import gt

Shape = tuple[int, ...]
EQUATIONS: dict[str, tuple[Shape, ...]] = {
    "i,i->i": ((4,), (4,)),
    "i,i->": ((4,), (4,)),
    "...i,...i->...": ((3, 4), (3, 4)),
    "i,j->ij": ((3,), (4,)),
    "i,j->": ((3,), (2,)),
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,kj->ik": ((2, 3), (2, 3)),
    "ij,jk->": ((2, 3), (3, 2)),
    "ij,ij->ij": ((2, 3), (2, 3)),
    "ij,i->j": ((2, 3), (2,)),
    "ij,j->ij": ((2, 3), (3,)),
    "ij,ik->ijk": ((2, 3), (2, 2)),
    "bij,bjk->bik": ((2, 2, 3), (2, 3, 2)),
    "ab,cd->": ((2, 3), (1, 2)),
    "ii,ii->i": ((3, 3), (3, 3)),
    "i,->i": ((3,), ()),
    ",->": ((), ()),
    "...,...->...": ((2, 3), (2, 3)),
    "ij->i": ((2, 3),),
    "ij->ji": ((2, 3),),
    "ij->": ((2, 3),),
    "ii->i": ((3, 3),),
    "ii": ((3, 3),),
    "i,i,i->i": ((3,), (3,), (3,)),
    "i,j,k->ijk": ((2,), (2,), (2,)),
    "ij,jk,kl->il": ((2, 3), (3, 2), (2, 2)),
}
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "bool"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64"]
OF_THREE = ["uint8", "int64", "float16", "float32", "bool"]


def made(t: Any, shape: Shape, dtype: str, place: int) -> Any:
    """Numbers that overflow their products, where the dtype is a narrow one."""
    steps = range(math.prod(shape))
    wide = dtype in {"uint8", "int16", "int32", "int64"}
    numbers = [float((7 * n + 3 * place) % 9 - 4) for n in steps]
    if dtype == "bool":
        numbers = [float((n + place) % 2) for n in steps]
    elif wide or dtype == "int8":
        numbers = [float((37 * n + 11 * place + 90) % (251 if wide else 120)) for n in steps]
    return t.tensor(numbers).reshape(shape).to(getattr(t, dtype))


def outcome(t: Any, equation: str, dtypes: tuple[str, ...]) -> tuple[str, np.ndarray] | None:
    shapes = EQUATIONS[equation]
    operands = [
        made(t, shape, dtype, place)
        for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    try:
        result = t.einsum(equation, *operands)
        whole = result.to(t.complex128).numpy()
    except RuntimeError:
        return None
    return str(result.dtype).split(".")[-1], whole


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("equation", EQUATIONS)
def test_dtypes(equation: str) -> None:
    count = len(EQUATIONS[equation])
    for dtypes in itertools.product(OF_THREE if count == 3 else DTYPES, repeat=count):
        expected, got = (outcome(t, equation, dtypes) for t in (torch, gt))
        assert (got is None) == (expected is None), dtypes
        if expected is None or got is None:
            continue
        assert got[0] == expected[0], dtypes
        bound = 0.02 if expected[0] in {"float16", "bfloat16"} else 1e-5
        np.testing.assert_allclose(got[1], expected[1], bound, bound, err_msg=str(dtypes))
