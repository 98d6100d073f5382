"""A backward pass minds a write to what was used before exactly where PyTorch's does.

PyTorch keeps operands and results for a gradient, and refuses the pass where one of these was
written since. GT's values are never written, so its gradients are right in any case; programs that
PyTorch runs must run, and those that it refuses are refused.
"""

from collections.abc import Iterator, Sequence

import pytest

torch = pytest.importorskip("torch")

from harness.entries import entries, title  # noqa: E402
from harness.writes import LAX, cases, differences  # noqa: E402
from torch_session import torch_workers  # noqa: E402

import gt  # noqa: E402

# GT refuses writes here that PyTorch allows.
STRICTER = {
    "kron": "PyTorch's gradient is another one then: it reads what was written over",
}
RUNNING = "running statistics, which the next call moves in GT by a write like any other"
# GT allows writes here that PyTorch refuses; the gradients are those before the write.
LAXER = {
    "pow": "PyTorch keeps the result where both are tensors, and not where one is a number",
    "__rpow__": "as pow",
    "index_add": "with alpha GT adds a product, which nobody writes",
    "tensordot": "of dimensions of size 1 PyTorch keeps the operand, GT a reshaped copy",
    "native_layer_norm": "nobody has the row's mean and rstd: what was detached of them is written",
    "native_batch_norm": RUNNING,
    "_native_batch_norm_legit": RUNNING,
    "_batch_norm_with_update": RUNNING,
    "nn.functional.batch_norm": RUNNING,
}


@pytest.fixture(scope="module", autouse=True)
def torch_worker_on_the_cpu() -> Iterator[None]:
    """One worker for all entries."""
    with torch_workers(1):
        yield


def assert_as_pytorch(entry: str, found: Sequence[tuple[object, str | None]]) -> None:
    """All of `found` agree, but for writes that `entry` is said to treat in its own way."""
    wrong = [(case, what) for case, what in found if what]
    strict = [pair for pair in wrong if pair[1].startswith("GT raises")]
    lax = [pair for pair in wrong if pair[1] == LAX]
    others = [pair for pair in wrong if pair not in strict and pair not in lax]
    if entry not in STRICTER:
        others += strict
    if entry not in LAXER:
        others += lax
    assert not others, "\n".join(f"{case}: {what}" for case, what in others)
    assert strict or entry not in STRICTER, "stale: it refuses nothing more than PyTorch"
    assert lax or entry not in LAXER, "stale: it allows nothing more than PyTorch"


@pytest.mark.parametrize("op", entries(), ids=title)
def test_entry_minds_the_writes_that_pytorch_minds(op):
    assert_as_pytorch(title(op), list(differences(op)))


def test_the_exceptions_are_entries():
    assert STRICTER.keys() | LAXER.keys() <= {title(op) for op in entries()}


SQUARES, VECTORS, IMAGE, SCALE = (3, 3), (4, 3), (2, 3, 4), (3,)
# Expressions of a program, with the shapes of their operands.
EXPRESSIONS = {
    "2 / x": (lambda _, x: 2 / x, [VECTORS]),
    "1.0 / (1.0 + x)": (lambda _, x: 1.0 / (1.0 + x), [VECTORS]),
    "c / x": (lambda _, c, x: c / x, [(), VECTORS]),
    "x / c": (lambda _, x, c: x / c, [VECTORS, ()]),
    "2 ** x": (lambda _, x: 2**x, [VECTORS]),
    "x ** 2": (lambda _, x: x**2, [VECTORS]),
    "exp2": (lambda lib, x: lib.exp2(x), [VECTORS]),
    "cross": (lambda lib, a, b: lib.linalg.cross(a, b), [VECTORS, VECTORS]),
    "chain_matmul": (lambda lib, a, b, c: lib.chain_matmul(a, b, c), [SQUARES] * 3),
    "multi_dot": (lambda lib, a, b, c: lib.linalg.multi_dot([a, b, c]), [SQUARES] * 3),
    "bilinear": (
        lambda lib, *x: lib.nn.functional.bilinear(*x),
        [VECTORS, VECTORS, (5, 3, 3), (5,)],
    ),
    "polar": (lambda lib, a, b: lib.view_as_real(lib.polar(a, b)) * 1, [VECTORS, VECTORS]),
    "complex": (lambda lib, a, b: lib.view_as_real(lib.complex(a, b)) * 1, [VECTORS, VECTORS]),
    "ldexp": (lambda lib, a, b: lib.ldexp(a, b), [VECTORS, VECTORS]),
    "float_power": (lambda lib, a, b: lib.float_power(a, b), [VECTORS, VECTORS]),
    "rms_norm": (lambda lib, x, w: lib.nn.functional.rms_norm(x, (3,), w), [VECTORS, SCALE]),
    "rms_norm of no weight": (lambda lib, x: lib.nn.functional.rms_norm(x, (3,)), [VECTORS]),
    "layer_norm": (
        lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (3,), w, b),
        [VECTORS, SCALE, SCALE],
    ),
    "conv1d": (lambda lib, *x: lib.nn.functional.conv1d(*x), [IMAGE, (2, 3, 2), (2,)]),
    "fft": (lambda lib, x: lib.fft.rfft(x).abs(), [VECTORS]),
    "interpolate": (lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2), [IMAGE]),
    "block_diag": (lambda lib, a, b: lib.block_diag(a, b), [SQUARES, VECTORS]),
    "cholesky": (lambda lib, x: lib.linalg.cholesky(x @ x.mT + 9 * lib.eye(3)), [SQUARES]),
    "solve": (lambda lib, a, b: lib.linalg.solve(a, b), [SQUARES, SCALE]),
    "erfinv": (lambda lib, x: lib.erfinv(x / 9), [VECTORS]),
    "copysign": (lambda lib, a, b: lib.copysign(a, b), [VECTORS, VECTORS]),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression_minds_the_writes_that_pytorch_minds(name):
    expression, shapes = EXPRESSIONS[name]
    generator = torch.Generator().manual_seed(1)
    operands = [
        torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for shape in shapes
    ]
    found = list(
        cases(
            name, 0, operands, range(len(operands)),
            lambda twins: expression(torch, *twins),
            lambda twins: expression(gt, *twins),
        )
    )  # fmt: skip
    assert len(found) > len(operands), "every operand and the result"
    assert_as_pytorch(name, found)


@pytest.mark.parametrize(
    "expression",
    [
        lambda lib, x: lib.fft.fft(x).real,
        lambda lib, x: lib.nn.functional.pixel_shuffle(x.reshape(1, 4, 1, 1), 2),
        lambda lib, x: lib.block_diag(x, x),
        lambda lib, x: lib.linalg.inv(x),
        lambda lib, x: lib.nn.functional.interpolate(x.reshape(1, 2, 2), scale_factor=2.0),
        lambda lib, x: lib.special.i0(x),
        lambda lib, x: 2 / x,
    ],
)
def test_a_second_pass_goes_through_what_keeps_nothing(expression):
    """PyTorch frees what it keeps, so a second pass is refused there alone."""

    def passes(library: object) -> tuple[str, list[list[float]]]:
        x = library.tensor([[3.0, 1.0], [1.0, 2.0]], requires_grad=True)
        made = expression(library, x)
        weights = library.ones_like(made.detach())
        try:
            made.backward(weights)
            made.backward(weights)
        except RuntimeError as error:
            return str(error)[:60], x.grad.tolist()
        return "", x.grad.tolist()

    (ours, gradient), (theirs, expected) = passes(gt), passes(torch)
    assert ours == theirs
    torch.testing.assert_close(torch.tensor(gradient), torch.tensor(expected))
