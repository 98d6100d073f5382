"""Instructions that run with those before them in one pass: the bits of one after the other.

Which instructions run together is crates/worker/src/joined.rs, whose tests stand beside it.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from spread_session import workers  # noqa: E402
from test_aten_own import PRODUCTS, drawn  # noqa: E402
from test_aten_rows import bits  # noqa: E402

import gt  # noqa: E402
from gt.worker.aten.trial import Trial, _Argument  # noqa: E402
from gt.worker.native.values import POWERS  # noqa: E402
from gt.worker.pytorch import products  # noqa: E402
from gt.worker.pytorch.elementwise import in_place, kernels, number_first  # noqa: E402

KERNELS, NUMBER_FIRST = kernels(), number_first()
# The result of the step before.
SO_FAR = None
Step = tuple[str, tuple[object, ...]]


class _Step(ctypes.Structure):
    _fields_ = (
        ("program", ctypes.c_void_p),
        ("operands", ctypes.POINTER(_Argument)),
        ("from_", ctypes.c_uint64),
    )


def together(trial: Trial, steps: Sequence[Step], over: int = 0) -> tuple[int, torch.Tensor] | None:
    """Number of steps that the helper joins to the first one, and the result; None if none."""
    given, natives, handles = [], [], []
    for row, operands in steps:
        is_first = not natives
        arguments = [
            _Argument(1, 0) if one is SO_FAR and not is_first else trial._argument(one)
            for one in operands
        ]
        handles += [one.bits for one in arguments if one.kind == 1 and one.bits]
        kinds = [one.kind for one in arguments]
        bound = trial.binder.bind(row, kinds, [], over if is_first else 0, [])
        assert bound is not None, row
        from_ = 0 if is_first else sum(1 << at for at, x in enumerate(operands) if x is SO_FAR)
        given.append((_Argument * len(arguments))(*arguments))
        natives.append(_Step(bound[0], given[-1], from_))
    results = (ctypes.c_void_p * 1)()
    ran = trial.helper.gt_run_joined((_Step * len(natives))(*natives), len(natives), results)
    assert ran >= -1, trial.helper.gt_error_text()
    made = trial.helper.gt_to_python(results[0]) if ran > 0 else None
    for handle in handles + results[:][: ran > 0]:
        trial.helper.gt_release(handle)
    for one in natives:
        trial.helper.gt_program_free(one.program)
    return None if made is None else (ran, made)


def one_by_one(steps: Sequence[Step]) -> torch.Tensor:
    """By the Python engine's kernels."""
    made = None
    for row, given in steps:
        operands = [made if one is SO_FAR else one for one in given]
        is_tensor = isinstance(operands[0], torch.Tensor)
        made = (KERNELS if is_tensor else NUMBER_FIRST)[row](*operands)
    assert isinstance(made, torch.Tensor)
    return made


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("has_bias", [None, False, True])
def test_products_with_relu_and_its_gradient(
    aten_helper: Trial,  # noqa: F811
    name: str,
    has_bias: bool | None,
) -> None:
    left, right = PRODUCTS[name]
    product: Step = ("matmul", (left, right))
    if has_bias is not None:
        bias = drawn(right.shape[1]) if has_bias else None
        product = ("linear", (left, right.t(), bias))
    with torch.inference_mode():
        alone = getattr(products, product[0])(*product[1])
        gate = drawn(*alone.shape)
        gate.view(-1)[:4] = torch.tensor([torch.nan, -0.0, 0.0, torch.inf])
        for step, expected in (
            (("relu", (SO_FAR,)), alone.relu()),
            (
                ("relu_backward", (SO_FAR, gate)),
                torch.ops.aten.threshold_backward(alone, gate, 0),
            ),
        ):
            made = together(aten_helper, [product, step, ("neg", (SO_FAR,))])
            assert made is not None
            assert made[0] == 1
            assert bits([made[1]]) == bits([expected])


@pytest.mark.parametrize(
    ("operands", "step"),
    [
        ((drawn(20, 20), drawn(20, 20)), ("relu", (SO_FAR,))),
        ((drawn(80, 80, dtype=torch.float64),) * 2, ("relu", (SO_FAR,))),
        ((drawn(512), drawn(512, 600)), ("relu", (SO_FAR,))),
        ((drawn(80, 80),) * 2, ("neg", (SO_FAR,))),
        ((drawn(80, 80),) * 2, ("relu_backward", (drawn(80, 80), SO_FAR))),
        ((drawn(80, 80),) * 2, ("relu_backward", (SO_FAR, drawn(80, 160)[:, ::2]))),
        ((drawn(80, 80),) * 2, ("relu_backward", (SO_FAR, drawn(80, 81)))),
        ((drawn(80, 80),) * 2, ("relu_backward", (SO_FAR, drawn(80, 80, dtype=torch.float64)))),
    ],
)
def test_other_products_are_left_alone(
    aten_helper: Trial,  # noqa: F811
    operands: tuple[torch.Tensor, ...],
    step: Step,
) -> None:
    with torch.inference_mode():
        assert together(aten_helper, [("matmul", operands), step]) is None


EDGES = [0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, 1e-40, -1e-40, 3e38, 1 / 3, -7.0]
UNARY = ("neg", "abs", "square", "reciprocal", "rsqrt", "relu")
BINARY = ("add", "sub", "mul", "div", "relu_backward")
NUMBERS = (2, 0.3, -1, 1e300, 2**60 + 2**36 + 1)


def edged(*size: int) -> torch.Tensor:
    """Random numbers with each of the edges among them."""
    made = drawn(*size)
    flat = made.view(-1)
    count = min(len(EDGES), flat.numel())
    flat[:count] = torch.tensor(EDGES[:count])
    return made[torch.randperm(size[0])] if len(size) == 1 else made


def same(made: torch.Tensor, expected: torch.Tensor) -> None:
    """Every bit, but for the sign of what is no number."""
    assert torch.equal(made.isnan(), expected.isnan())
    assert bits([made.nan_to_num(0.5)]) == bits([expected.nan_to_num(0.5)])


SIZES = [(5000,), (3, 7, 401), (40, 16, 24), (2, 40000), (300, 1), (1, 1, 5), (4, 8192)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_row_of_a_chain(aten_helper: Trial, size: tuple[int, ...]) -> None:  # noqa: F811
    x, y = edged(*size), edged(*size)
    others = [y, edged(size[-1]), *NUMBERS, torch.tensor(0.7), edged(1)]
    if len(size) > 1:
        others.append(edged(*size[:-1], 1))
    with torch.inference_mode():
        for row in UNARY:
            steps: list[Step] = [("mul", (x, y)), (row, (SO_FAR,)), ("add", (SO_FAR, x))]
            check(aten_helper, steps)
        for row, other in itertools.product(BINARY, others):
            is_number = not isinstance(other, torch.Tensor)
            if row == "relu_backward" and is_number:
                continue
            check(aten_helper, [("neg", (x,)), (row, (SO_FAR, other))])
            check(aten_helper, [("neg", (x,)), (row, (other, SO_FAR))])
            check(aten_helper, [(row, (x, other)), ("mul", (SO_FAR, SO_FAR))])
        # The helper's table is Python's but for roots, which are not PyTorch's bits.
        for power in (2.0, *(one for one in POWERS if POWERS[one] != "sqrt")):
            check(aten_helper, [("add", (x, y)), ("pow", (SO_FAR, power))])
        condition = drawn(*size) > 0
        columns = condition[..., :1].contiguous()
        for some in (condition, columns, condition.reshape(-1)[: size[-1]]):
            choices: list[Step] = [
                ("where", (some, SO_FAR, y)),
                ("where", (some, 0.3, SO_FAR)),
                ("where", (some, SO_FAR, SO_FAR)),
                ("masked_fill", (SO_FAR, some, -math.inf)),
                ("mul", (SO_FAR, some)),
            ]
            for step in choices:
                check(aten_helper, [("neg", (x,)), step, ("add", (SO_FAR, 1))])
            check(aten_helper, [("where", (condition, x, 2)), ("relu", (SO_FAR,))])
            check(aten_helper, [("masked_fill", (x, some, 2)), ("relu", (SO_FAR,))])


def check(trial: Trial, steps: Sequence[Step]) -> None:
    made = together(trial, steps)
    assert made is not None, steps
    assert made[0] == len(steps) - 1
    same(made[1], one_by_one(steps))


def test_long_chains_of_random_steps(aten_helper: Trial) -> None:  # noqa: F811
    draw = torch.Generator().manual_seed(11)

    def chosen(many: Sequence[object]) -> object:
        return many[int(torch.randint(len(many), (), generator=draw))]

    with torch.inference_mode():
        for _ in range(200):
            size = chosen([(4097,), (65, 130), (7, 9, 100), (3, 20000)])
            assert isinstance(size, tuple)
            tensors = [drawn(*size), drawn(*size), drawn(size[-1]), drawn(*size[:-1], 1)]
            first = drawn(*size)
            steps: list[Step] = [("add", (first, chosen(tensors[:2])))]
            for _ in range(int(torch.randint(1, 20, (), generator=draw))):
                row = chosen(UNARY + BINARY * 2)
                if row in UNARY:
                    steps.append((str(row), (SO_FAR,)))
                    continue
                sides = [SO_FAR, chosen([*tensors, 0.3]) if row != "relu_backward" else tensors[0]]
                steps.append((str(row), tuple(sides[:: chosen([1, -1])])))  # type: ignore[misc]
            made = together(aten_helper, steps)
            assert made is not None
            assert made[0] == min(len(steps), 16) - 1
            same(made[1], one_by_one(steps[: made[0] + 1]))


def test_a_chain_over_its_operand(aten_helper: Trial) -> None:  # noqa: F811
    x, y = drawn(70, 80), drawn(80)
    steps: list[Step] = [("mul", (x, 2.0)), ("sub", (y, SO_FAR)), ("relu", (SO_FAR,))]
    assert in_place()["mul"][0][0] == 1
    with torch.inference_mode():
        expected, memory = one_by_one(steps), x.data_ptr()
        made = together(aten_helper, steps, over=1)
        assert made is not None
        assert made[1].data_ptr() == memory
        same(made[1], expected)
        # The second operand's memory, of a row whose operands may be exchanged.
        first, other = drawn(80), drawn(70, 80)
        steps = [("add", (first, other)), ("mul", (SO_FAR, first))]
        expected = one_by_one(steps)
        made = together(aten_helper, steps, over=2)
        assert made is not None
        assert made[1].data_ptr() == other.data_ptr()
        same(made[1], expected)


X = drawn(90, 50)


@pytest.mark.parametrize(
    ("steps", "ran"),
    [
        # Rows, shapes, strides and dtypes that are for others end a chain.
        ([("add", (X, X)), ("exp", (SO_FAR,)), ("neg", (SO_FAR,))], None),
        ([("exp", (X,)), ("neg", (SO_FAR,))], None),
        ([("add", (X, 1)), ("neg", (SO_FAR,)), ("abs", (SO_FAR,)), ("sqrt", (SO_FAR,))], 2),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("mul", (SO_FAR, X.double()))], 1),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("mul", (SO_FAR, drawn(90, 100)[:, ::2]))], 1),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("mul", (SO_FAR, drawn(50, 90).t()))], 1),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("mul", (SO_FAR, drawn(1, 90, 50)))], 1),
        ([("add", (X.t(), X.t())), ("neg", (SO_FAR,))], None),
        ([("add", (X.half(), X.half())), ("neg", (SO_FAR,))], None),
        ([("add", (X[:, :1], X[:1])), ("neg", (SO_FAR,))], None),
        ([("add", (drawn(4500), drawn(1, 4500))), ("neg", (SO_FAR,))], 1),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("pow", (SO_FAR, 3))], 1),
        ([("add", (X, X)), ("neg", (SO_FAR,)), ("pow", (SO_FAR, 0.5))], 1),
        ([("add", (X, X)), ("pow", (2.0, SO_FAR))], None),
        ([("add", (X, X)), ("mul", (SO_FAR, True))], None),
        ([("add", (X, X)), ("where", (SO_FAR, X, X))], None),
        ([("add", (X, X)), ("masked_fill", (SO_FAR, X > 0, 1e300))], None),
        ([("add", (X > 0, X > 0)), ("mul", (SO_FAR, X))], None),
        ([("add", (X, X)), ("pow", (SO_FAR, X))], None),
        # Rows of two lengths, and what is repeated in the middle.
        ([("add", (X, drawn(50))), ("mul", (SO_FAR, drawn(90, 1))), ("neg", (SO_FAR,))], 2),
        (
            [
                ("neg", (drawn(6, 5, 40),)),
                ("mul", (SO_FAR, drawn(40))),
                ("mul", (SO_FAR, drawn(5, 40))),
            ],
            1,
        ),
        ([("neg", (drawn(6, 5, 40),)), ("mul", (SO_FAR, drawn(5, 1)))], None),
        ([("neg", (drawn(6, 5, 40),)), ("mul", (SO_FAR, drawn(6, 1, 40)))], None),
        ([("neg", (drawn(0, 5),)), ("neg", (SO_FAR,))], None),
    ],
    ids=str,
)
def test_where_a_chain_ends(
    aten_helper: Trial,  # noqa: F811
    steps: list[Step],
    ran: int | None,
) -> None:
    with torch.inference_mode():
        made = together(aten_helper, steps)
        assert (made and made[0]) == ran
        if made is not None:
            same(made[1], one_by_one(steps[: made[0] + 1]))


def train() -> list[gt.Tensor]:
    """Products that are worth several threads, and chains: a net, its norm and optimizer."""
    gt.manual_seed(1)
    model = gt.nn.Sequential(
        gt.nn.Linear(300, 200), gt.nn.ReLU(), gt.nn.Linear(200, 200, bias=False),
        gt.nn.ReLU(), gt.nn.Linear(200, 200), gt.nn.ReLU(), gt.nn.Linear(200, 10),
    )  # fmt: skip
    scale, shift = gt.ones(300, requires_grad=True), gt.zeros(300, requires_grad=True)
    parameters = [*model.parameters(), scale, shift]
    squares = [gt.zeros_like(one) for one in parameters]
    x, y = gt.randn(4, 100, 300), gt.randint(0, 10, (400,))
    for _ in range(12):
        centered = x - x.mean(-1, keepdim=True)
        spread = ((centered * centered).mean(-1, keepdim=True) + 1e-5).rsqrt()
        normed = centered * spread * scale + shift
        normed = gt.where(x > 0, normed * 1.5, normed).masked_fill(x > 2, 0.5) * (x < 1)
        loss = gt.nn.functional.cross_entropy(model(normed).view(400, 10), y)
        grads = gt.autograd.grad(loss, parameters)
        with gt.no_grad():
            for at, grad in enumerate(grads):
                squares[at] = squares[at] * 0.9 + grad * grad * 0.1
                parameters[at].sub_(0.01 * (grad / (squares[at].sqrt() + 1e-8)))
    return [loss, *parameters]


@pytest.mark.usefixtures("aten_helper")
def test_a_training_has_the_bits_of_both_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, joined = {}, {}
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for mode in ("off", "on"):
        monkeypatch.setenv("GT_ATEN", mode)
        with workers(1):
            trained[mode] = [one.detach().numpy().tobytes() for one in train()]
            joined[mode] = gt.debug.get_worker_stats()[0]["joined"]
    assert trained["off"] == trained["on"]
    assert joined["off"] == 0
    assert joined["on"] > 0


def test_a_training_by_the_native_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeing all that is published and nothing of it: the same bits."""
    trained = []
    monkeypatch.setenv("GT_BACKEND", "native")
    for look_ahead in ("", "0"):
        monkeypatch.setenv("GT_LOOK_AHEAD", look_ahead)
        with workers(1):
            trained.append([one.detach().numpy().tobytes() for one in train()])
            joined = gt.debug.get_worker_stats()[0]["joined"]
            assert (joined > 0) == (look_ahead == "")
    assert trained[0] == trained[1]
