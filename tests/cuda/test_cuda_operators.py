"""A worker's rows by GT's own CUDA kernels, on a CPU: the table, its wrappers, the emulator.

On a GPU: tests/gpu/test_gpu_own_operators.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cuda_operator_cases as cases
import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from cluster import Cluster  # noqa: E402
from cuda_training import train  # noqa: E402
from emulator_build import CMAKE, build  # noqa: E402
from played_cuda import CPU, Played, driver_of  # noqa: E402

import gt  # noqa: E402
from gt.worker.aten.binding import Binder  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.cuda import operators  # noqa: E402
from gt.worker.cuda import table as cuda_table  # noqa: E402
from gt.worker.cuda.operators import CudaOperators  # noqa: E402
from gt.worker.cuda.table import GENERIC, ROWS, SHARED, TABLE  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import attention as torch_attention  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

pytestmark = [
    pytest.mark.skipif(CMAKE is None, reason="cmake is not installed"),
    pytest.mark.timeout(600),
]
FLOAT, HALF = torch.float32, torch.bfloat16
WORKER = str(Path(__file__).parent / "played_cuda_worker.py")
Tables = cases.Tables


@pytest.fixture(scope="module")
def library() -> Path:
    return build("cuda_stand_in") / "libcuda_stand_in.so"


@pytest.fixture
def played(library: Path) -> Iterator[Played]:
    made = Played(library, driver_of(library))
    yield made
    made.forget()


@pytest.fixture
def tables(played: Played) -> Tables:
    return Tables(CudaOperators(played, "on"))


# ---- values ----


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("name", cases.PRODUCTS)
def test_products(tables: Tables, name: str, dtype: torch.dtype) -> None:
    cases.check_product(tables, name, dtype)
    if name == "few rows":
        half = "bf16" if dtype == HALF else "f16"
        assert tables.own.kernels.launched()["kernel"] == f"gt_skinny_nt_{half}"


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("name", cases.LINEARS)
def test_linear_layers(tables: Tables, name: str, dtype: torch.dtype) -> None:
    """The bias is added where the sums are: one launch."""
    launches = tables.own.kernels.launches
    cases.check_linear(tables, name, dtype)
    assert tables.own.kernels.launches == launches + 2


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("case", cases.ATTENTIONS, ids=str)
def test_attention_and_its_gradients(
    tables: Tables, case: tuple[int, int, int, int, int, bool, float], dtype: torch.dtype
) -> None:
    cases.check_attention(tables, case, dtype)


def test_attention_of_operands_between_two_copies(tables: Tables) -> None:
    cases.check_unaligned_attention(tables, HALF)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("case", cases.NORMS, ids=str)
def test_layer_norm_and_its_gradients(
    tables: Tables, case: tuple[tuple[int, ...], int, bool, bool], dtype: torch.dtype
) -> None:
    cases.check_layer_norm(tables, case, dtype)


def test_layer_norm_of_what_is_not_contiguous(tables: Tables) -> None:
    cases.check_transposed_layer_norm(tables)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("case", cases.NORMS, ids=str)
def test_rms_norm_and_its_gradients(
    tables: Tables, case: tuple[tuple[int, ...], int, bool, bool], dtype: torch.dtype
) -> None:
    cases.check_rms_norm(tables, case, dtype)


def test_rms_norm_of_what_is_not_contiguous(tables: Tables) -> None:
    cases.check_transposed_rms_norm(tables)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("ignore_index", [-100, 4])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_and_its_gradient(
    tables: Tables, reduction: str, ignore_index: int, dtype: torch.dtype
) -> None:
    cases.check_cross_entropy(tables, reduction, ignore_index, dtype)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
def test_losses_of_nothing(tables: Tables, dtype: torch.dtype) -> None:
    cases.check_losses_of_nothing(tables, dtype)


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_group_of_adamw_is_one_launch(tables: Tables, played: Played, *, decoupled: bool) -> None:
    launches = played.launches
    cases.check_adamw(tables, decoupled=decoupled)
    assert played.launches == launches + 2


def test_draws_and_dropout_have_the_bits_of_the_cpu(tables: Tables) -> None:
    x = tables.drawn(4, 9, dtype=FLOAT)
    for row, arguments in (
        ("uniform", ((4, 9), HALF, -1.0, 2.0, 7, 3)),
        ("randint", ((4, 9), torch.int64, -5, 10**12, 7, 3)),
        ("dropout", (x, 0.5, 7, 3)),
    ):
        made = cases._listed(tables.run(row, *arguments))
        for ours, theirs in zip(made, cases._listed(tables.theirs[row](*arguments)), strict=True):
            assert torch.equal(ours, theirs), row


def test_the_gradient_of_attention_that_kept_nothing_is_autograds() -> None:
    """The path of a GPU without kernels of GT's own."""
    drawn = torch.Generator().manual_seed(3)
    query, key, value, grad = (torch.randn(1, 2, 5, 8, generator=drawn) for _ in range(4))
    mask = torch.randn(5, 5, generator=drawn)
    for options in ((None, True, 0.5), (mask, False, 0.25)):
        with torch.inference_mode():
            made = torch_attention.rerun_backward(grad, query, key, value, *options)
        leaves = [x.clone().requires_grad_() for x in (query, key, value)]
        scores = leaves[0] @ leaves[1].mT * options[2]
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf")) if options[1] else scores + mask
        expected = torch.autograd.grad(scores.softmax(-1) @ leaves[2], leaves, grad)
        for ours, theirs in zip(made, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    empty = query[:, :, :0]
    for ours, of in zip(
        torch_attention.rerun_backward(empty, empty, key, value, None, False, 1.0),
        (empty, key, value),
        strict=True,
    ):
        assert ours.shape == of.shape
        assert not ours.any()


# ---- what is chosen ----


def test_auto_runs_what_has_the_bits_of_the_cpu_on_any_gpu(played: Played) -> None:
    auto = CudaOperators(played, "auto")
    on_hopper = {"cross_entropy_backward"}
    assert auto.names == {"random", "dropout"} | on_hopper
    table = kernels.table(CPU, auto)
    theirs = kernels.table(CPU)
    assert {row for row in ROWS if table[row] is not theirs[row]} == on_hopper
    a = torch.ones(16, 16, dtype=HALF)
    before = kernels_run(), played.launches
    table["matmul"](a, a)
    table["cross_entropy"](a, torch.zeros(16).long(), None, "mean", -100, 0.0)
    assert (kernels_run(), played.launches) == before
    table["uniform"]((3,), FLOAT, 0.0, 1.0, 1, 2)
    assert (kernels_run(), played.launches) == (before[0] + 1, before[1] + 1)


def test_auto_asks_whether_a_kernel_pays(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, target = torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)
    saved = (torch.ones(()), scores, target, None, torch.ones(()), "mean", -100, 0.0)
    table = kernels.table(CPU, CudaOperators(played, "auto"))
    for is_hopper, limit, expected in ((True, 32, 1), (True, 33, 0), (False, 32, 0)):
        monkeypatch.setattr(cuda_table, "_is_hopper", lambda _device, found=is_hopper: found)
        monkeypatch.setattr(cuda_table, "SCORES_MIN", limit)
        before = kernels_run()
        table["cross_entropy_backward"](*saved)
        assert kernels_run() - before == expected


def test_on_runs_every_row_of_the_table(played: Played) -> None:
    assert CudaOperators(played, "on").names == set(TABLE)
    assert len(TABLE) == len(ROWS) + len(GENERIC) + len(SHARED)
    assert set(ROWS) <= set(kernels.table(CPU))


def test_off_opens_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_KERNELS", "off")
    assert operators.open_for(torch.device("cuda", 0)) is None


def test_a_helper_in_cpp_leaves_their_rows_to_python(
    aten_helper: Trial,  # noqa: F811
    played: Played,
) -> None:
    """It calls ATen's kernels, past those of GT's own."""
    own = CudaOperators(played, "on").names
    text, stated = "_0, _1, _2, None, None, False, 0.0, 0.25", [6, 1, 4]
    attributes = ["attention", text, [], stated, True, FLOAT]
    numbers = [0.1, 0.9, 0.99, 1e-8, 0.0, 1, True, False]
    rows = (
        ("matmul", [1, 1], [], 0, []),
        ("linear", [1, 1, 1], [], 0, []),
        ("layer_norm", [1, 1, 1], [], 0, [(4,), 1e-5]),
        ("rms_norm_backward", [1, 1, 1, 1], [], 0, [(4,)]),
        ("adamw", [1, 1, 1, 1, 0], [], 0b1101, numbers),
    )
    plain, left = (Binder(aten_helper.helper, CPU, names) for names in (frozenset(), own))
    for row in rows:
        assert plain.bind(*row) is not None, row
        assert left.bind(*row) is None, row
    assert left.bind("aten", [], [1, 1, 1], 0, attributes) is None
    assert left.bind("aten", [], [1], 0, ["erfinv", "_0", *attributes[2:]]) is not None


# ---- what is refused ----


def _of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def _attention(dtype: torch.dtype, k: int, mask: str = "None") -> tuple[object, ...]:
    operands = [_of(dtype, 1, 1, 4, k) for _ in range(3)]
    if mask != "None":
        operands.append(_of(dtype, 4, 4))
    names = [kernels.DTYPES.index(one) for one in (dtype, FLOAT)]
    stated = [names[0], 4, 1, 1, 4, k, names[1], 3, 1, 1, 4]
    text = f"_0, _1, _2, {mask}, None, False, 0.0, 0.5"
    return operands, "attention", text, [], stated, True, FLOAT


def _losses(dtype: torch.dtype = FLOAT, **changed: object) -> tuple[object, ...]:
    given = {"target": torch.arange(4), "weight": None, "reduction": "mean"}
    given |= {"ignore_index": -100, "smoothing": 0.0} | changed
    return _of(dtype, 4, 8), *given.values()


def _shard_of_losses() -> tuple[object, ...]:
    scores, target = _of(FLOAT, 4, 8), torch.arange(4)
    return torch.tensor(1.0), scores, target, None, torch.tensor(4.0), "mean", -100, 0.0, 2, 12


def _step(**changed: object) -> tuple[object, ...]:
    given = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "step": 1}
    given |= {"decoupled": True, "maximize": False, "largest": None, "dtype": FLOAT} | changed
    largest, dtype = given.pop("largest"), given.pop("dtype")
    return *(_of(dtype, 3).abs() for _ in range(4)), largest, *given.values()


ALIGNED = "rows that do not begin and end at multiples of 8 elements"
REFUSED: dict[str, tuple[str, str, Callable[[], tuple[object, ...]]]] = {
    "float32": ("matmul", "torch.float32 and torch.float32", lambda: (_of(FLOAT, 8, 8),) * 2),
    "a vector": ("matmul", "a vector", lambda: (_of(HALF, 8, 8), _of(HALF, 8))),
    "odd columns": ("matmul", "an odd number", lambda: (_of(HALF, 8, 8), _of(HALF, 8, 3))),
    "depth": ("matmul", ALIGNED, lambda: (_of(HALF, 8, 4), _of(HALF, 4, 8))),
    "a beginning": ("matmul", ALIGNED, lambda: (_of(HALF, 8, 24)[:, 1:17], _of(HALF, 16, 8))),
    "transposed": (
        "matmul",
        "two transposed",
        lambda: (_of(HALF, 8, 16).t(), _of(HALF, 16, 8).t()),
    ),
    "a bias": (
        "linear",
        "a bias",
        lambda: (_of(HALF, 2, 8), _of(HALF, 4, 8), _of(HALF, 8)[::2]),
    ),
    "float32 layer": (
        "linear",
        "torch.float32",
        lambda: (_of(FLOAT, 2, 8), _of(FLOAT, 4, 8), None),
    ),
    "float64 norm": (
        "layer_norm",
        "torch.float64",
        lambda: (_of(torch.float64, 2, 8), None, None, (8,), 1e-5),
    ),
    "mixed norm": (
        "layer_norm",
        "torch.bfloat16 and torch.float32",
        lambda: (_of(HALF, 2, 8), _of(FLOAT, 8), None, (8,), 1e-5),
    ),
    "empty rows": (
        "layer_norm",
        "rows without elements",
        lambda: (_of(FLOAT, 2, 0), None, None, (0,), 1e-5),
    ),
    "statistics in half": (
        "layer_norm_backward",
        "mean and rstd of torch.bfloat16",
        lambda: (
            *(_of(HALF, 2, 8) for _ in range(2)),
            *(_of(HALF, 2, 1).abs() for _ in range(2)),
            None,
            (8,),
        ),
    ),
    "float64 rms norm": (
        "rms_norm",
        "torch.float64",
        lambda: (_of(torch.float64, 2, 8), None, (8,), 1e-5),
    ),
    "rms norm of empty rows": (
        "rms_norm",
        "rows without elements",
        lambda: (_of(FLOAT, 2, 0), None, (0,), 1e-5),
    ),
    "a mixed gradient of rms norm": (
        "rms_norm_backward",
        "torch.bfloat16 and torch.float32",
        lambda: (_of(FLOAT, 2, 8), _of(HALF, 2, 8), _of(FLOAT, 2, 1).abs(), None, (8,)),
    ),
    "float64 losses": ("cross_entropy", "torch.float64", lambda: _losses(torch.float64)),
    "weights": ("cross_entropy", "weights of classes", lambda: _losses(weight=torch.ones(8))),
    "smoothing": ("cross_entropy", "label smoothing", lambda: _losses(smoothing=0.1)),
    "images": (
        "cross_entropy",
        "other shapes",
        lambda: (_of(FLOAT, 2, 3, 4), torch.ones(2, 4).long(), None, "mean", -100, 0.0),
    ),
    "a shard": ("cross_entropy_backward", "a shard of the classes", _shard_of_losses),
    "float32 attention": ("aten", "torch.float32", lambda: _attention(FLOAT, 8)),
    "head size": ("aten", "a head size", lambda: _attention(HALF, 12)),
    "a mask": ("aten", "a mask", lambda: _attention(HALF, 8, "_3")),
    "amsgrad": ("adamw", "amsgrad", lambda: _step(largest=torch.ones(3))),
    "maximize": ("adamw", "maximize", lambda: _step(maximize=True)),
    "Adam's decay": ("adamw", "weight decay of Adam's", lambda: _step(decoupled=False)),
    "half parameters": ("adamw", "torch.bfloat16", lambda: _step(dtype=HALF)),
    "half dropout": ("dropout", "torch.bfloat16", lambda: (_of(HALF, 3), 0.5, 1, 2)),
    "dimensions": (
        "normal",
        "more than 8 dimensions",
        lambda: ((1,) * 9, FLOAT, 0.0, 1.0, 1, 2),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_takes_runs_in_pytorch_and_is_told_once(
    played: Played, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row, reason, make = REFUSED[name]
    arguments = make()
    expected = cases._listed(_quiet(kernels.table(CPU)[row], arguments))
    for mode, told in (("on", 1), ("auto", 0)):
        table = kernels.table(CPU, CudaOperators(played, mode))
        for _ in range(2):
            made = cases._listed(_quiet(table[row], arguments))
            for ours, theirs in zip(made, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        lines = [line for line in capsys.readouterr().err.splitlines() if reason in line]
        assert len(lines) == told, (mode, lines)
        assert all(line.startswith("gt.worker: PyTorch runs ") for line in lines)


def _quiet(run: Callable[..., object], arguments: tuple[object, ...]) -> object:
    with torch.inference_mode():
        return run(*arguments)


def test_each_reason_is_told_for_each_operator(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    wide, half = _of(FLOAT, 8, 8), _of(HALF, 8, 8)
    for _ in range(2):
        tables.ours["matmul"](wide, wide)
        tables.ours["matmul"](wide[:4], wide)
        tables.ours["matmul"](half, half[0])
        tables.ours["linear"](wide, wide, None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" in place of ")[0].split()[-1] for line in lines] == [
        "matmul",
        "matmul",
        "linear",
    ]
    assert "(operands (8, 8), (8, 8))" in lines[0]


def test_a_mistake_has_pytorchs_class_and_text(tables: Tables) -> None:
    a, b = _of(HALF, 8, 16), _of(HALF, 8, 16)
    for row, arguments in (
        ("matmul", (a, b)),
        ("matmul", (_of(HALF, 2, 8, 8), _of(HALF, 3, 8, 8))),
        ("linear", (a, b[:, :8], None)),
        ("matmul", (a, b.t().half())),
    ):
        raised = []
        for table in (tables.ours, tables.theirs):
            with pytest.raises(RuntimeError) as caught:
                table[row](*arguments)
            raised.append(str(caught.value))
        assert raised[0] == raised[1]


def test_what_autograd_follows_is_pytorchs(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gradient of a gradient runs the operator again, under torch's autograd."""
    table = kernels.table(CPU, CudaOperators(played, "on"))
    operands, *rest = _attention(HALF, 8)
    text = rest[1]
    grads = [_of(HALF, 1, 1, 4, 8), None]
    half = kernels.DTYPES.index(HALF)
    twice = [0, -1, 0, -1]
    stated = [half, 4, 1, 1, 4, 8]
    given = [*operands, *grads, _of(HALF, 1, 1, 4, 8)]
    before = played.launches
    with contextlib.suppress(RuntimeError):  # PyTorch's kernel may have no second derivative
        table["aten_vjp"](given, "attention", text, twice, stated, False, FLOAT)
    assert played.launches == before
    assert "operands that autograd follows" in capsys.readouterr().err


# ---- a worker process ----


def _losses_of(mode: str, library: Path) -> tuple[list[float], int]:
    """Losses on a worker with a simulated GPU, and the number of GT kernels that ran."""
    environment = {"GT_KERNELS": mode, "PLAYED_DRIVER": str(library), "GT_ATEN": "on"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        with Cluster(0) as cluster:
            cluster.command[1:3] = [WORKER]
            cluster.command[cluster.command.index("--backend") + 1] = "pytorch"
            cluster.add_worker()
            cluster.wait_for_workers()
            gt.disconnect()
            gt.connect(cluster.address)
            try:
                losses = train()
                return losses, gt.debug.get_worker_stats()[0]["own_calls"]
            finally:
                gt.disconnect()


def test_a_worker_trains_as_without_them(library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each large operator of the model, in the engine in C++ too, which is on."""
    ours, calls = _losses_of("on", library)
    theirs, few = _losses_of("off", library)
    assert theirs[-1] < theirs[0]
    assert ours == pytest.approx(theirs, rel=1e-2)
    assert "PyTorch runs" not in capfd.readouterr().err
    # A step: 4 layers and 8 products of their gradients, 2 norms, attention, the loss, each with
    # its gradient, and one update of all parameters.
    assert calls - few >= 3 * (12 + 4 + 2 + 2 + 1)


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_the_benchmark_of_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/gpu/step.py on the host, with small operands, once."""
    monkeypatch.setenv("GT_KERNELS", "auto")  # the benchmark sets others, which end with the test
    path = Path(__file__).parent.parent.parent / "benchmarks" / "gpu" / "step.py"
    monkeypatch.syspath_prepend(path.parent.parent)
    spec = importlib.util.spec_from_file_location("gpu_step", path)
    assert spec is not None
    assert spec.loader is not None
    step = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_step", step)  # its dataclass looks itself up
    spec.loader.exec_module(step)
    try:
        for case in (step.Case("MLP", 4, 16, steps=1), step.Case("GPT block", 2, 64, 8, steps=1)):
            line = step.compare(case, 1, lambda value: value, 0)
            assert len(line) == len(step.HEAD)
            assert line[0] == case.name
    finally:
        gt.disconnect()
