"""CUDA kernels as a worker calls them, on a CPU: through a stand-in of CUDA's driver, whose
launches run the kernels' source under csrc/emulator. On a GPU: tests/gpu/test_gpu_kernels.py.
"""

import dataclasses
import importlib
import importlib.util
import json
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import cuda_cases
import cuda_rank
import pytest
import torch
from emulator_build import CMAKE, build
from played_cuda import CPU, IMAGES, Played, driver_of, native

from gt.worker.cuda import attention as cuda_attention
from gt.worker.cuda import kernels as cuda_kernels
from gt.worker.cuda.kernels import AdamwStep
from gt.worker.cuda.operators import CudaOperators
from gt.worker.pytorch import creation
from gt.worker.random_place import Place

CUDA = Path(__file__).parent.parent.parent / "csrc" / "cuda"
DYNAMIC_SHARED = {
    name: int(size)
    for name, size in map(str.split, (CUDA / "dynamic_shared.txt").read_text().splitlines()[1:])
}

pytestmark = [
    pytest.mark.skipif(CMAKE is None, reason="cmake is not installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def library():
    return build("cuda_stand_in") / "libcuda_stand_in.so"


@pytest.fixture(scope="module")
def driver(library):
    """At the end: what launches asked for is what the table says, and of other kernels nothing."""
    loaded = driver_of(library)
    yield loaded
    launched = json.loads(loaded.stand_in_shared())
    assert launched == {name: DYNAMIC_SHARED.get(name, 0) for name in launched}


@pytest.fixture
def fail(driver):
    """Makes a call of the driver fail until the end of the test."""
    failing = []

    def begin(call, code):
        failing.append(call)
        driver.stand_in_fail(call.encode(), code)

    yield begin
    for call in failing:
        driver.stand_in_fail(call.encode(), 0)


@pytest.fixture
def kernels(library, driver):
    made = Played(library, driver)
    yield made
    made.forget()


@pytest.fixture(params=["0", pytest.param("7", marks=pytest.mark.values_only)])
def schedule(request, monkeypatch):
    """Two: threads in order, and by a seed. Most of these kernels are launched nowhere else.

    What a launch is given does not depend on it.
    """
    monkeypatch.setenv("GT_EMULATOR_SEED", request.param)


@pytest.fixture
def hopper(library, driver):
    """Kernels of a device of sm_90."""
    driver.stand_in_capability(90)
    made = Played(library, driver)
    yield made
    made.forget()
    driver.stand_in_capability(80)


# ---- values, through the whole path ----


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("box", cuda_cases.BOXES, ids=str)
@pytest.mark.parametrize(("kind", "name", "limits"), cuda_cases.KINDS)
def test_random_numbers_have_the_bits_of_the_cpu(kernels, kind, name, limits, box):
    cuda_cases.check_random(kernels, kind, name, limits, box)


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_is_pytorchs(kernels, p):
    cuda_cases.check_dropout(kernels, p)


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("dtype", cuda_cases.TOLERANCES, ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (4, 65)])
def test_cross_entropy_and_its_gradient(kernels, rows, columns, dtype):
    cuda_cases.check_cross_entropy(kernels, rows, columns, dtype)


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dtype", cuda_cases.TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 40), (131, 5)])
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_norms_and_their_gradients(kernels, kind, shape, dtype, residual):
    cuda_cases.check_norm(kernels, kind, shape, dtype, residual=residual)


def test_adamw_updates_a_group_in_one_launch(kernels):
    cuda_cases.check_adamw(kernels, [(3, 5), (1,), (0,), (300,)])
    launched = kernels.launched()
    assert (launched["kernel"], launched["grid"]) == ("gt_adamw_f32", [4, 1, 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", cuda_cases.PRODUCTS, ids=str)
def test_products(kernels, size, layout, dtype):
    cuda_cases.check_gemm(kernels, size, layout, dtype)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_of_a_group_are_one_launch(kernels, layout):
    cuda_cases.check_grouped_gemm(kernels, [(8, 24, 8), (0, 8, 8), (136, 16, 16)], layout)
    assert kernels.launched()["kernel"] == f"gt_grouped_gemm_{layout}_bf16"
    assert kernels.launched()["grid"] == [3, 1, 1]


def test_few_rows_are_a_kernel_of_their_own(kernels):
    a = torch.ones(8, 16, dtype=torch.float16)
    weight = torch.ones(40, 16, dtype=torch.float16)
    assert torch.equal(kernels.gemm(a, weight.mT), torch.full((8, 40), 16.0).half())
    launched = kernels.launched()
    assert (launched["kernel"], launched["grid"]) == ("gt_skinny_nt_f16", [3, 1, 1])
    kernels.gemm(torch.ones(9, 16, dtype=torch.float16), weight.mT)
    assert kernels.launched()["kernel"] == "gt_gemm_nt_f16"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", cuda_cases.HOPPER_PRODUCTS, ids=str)
def test_products_on_hopper(hopper, size, layout, dtype):
    cuda_cases.check_gemm(hopper, size, layout, dtype, "sm_90a")
    assert hopper.launched()["kernel"].startswith("gt_gemm_sm90_")


def test_hopper_chooses_a_kernel_by_the_operands(hopper):
    half = torch.bfloat16
    a, b = torch.ones(136, 72, dtype=half), torch.ones(72, 264, dtype=half)
    assert torch.equal(hopper.gemm(a, b), torch.full((136, 264), 72.0).to(half))
    launched = hopper.launched()
    # Two clusters of two blocks on four processors; one pair of tiles would leave one idle.
    names = ("kernel", "grid", "block", "attributes")
    expected = ["gt_gemm_sm90_256_nn_bf16", [4, 1, 1], [384, 1, 1], [4]]
    assert [launched[name] for name in names] == expected
    hopper.gemm(a, b[:, :136])
    assert hopper.launched()["kernel"] == "gt_gemm_sm90_128_nn_bf16"
    hopper.gemm(a, b, path="sm_80")
    assert hopper.launched()["kernel"] == "gt_gemm_nn_bf16"
    hopper.gemm(a[:8], torch.ones(264, 72, dtype=half).mT)
    assert hopper.launched()["kernel"] == "gt_skinny_nt_bf16"
    # One matrix for all of a batch: no tensor of rows, columns and batches.
    hopper.gemm(torch.ones(2, 16, 72, dtype=half), b.expand(2, 72, 264))
    assert hopper.launched()["kernel"] == "gt_gemm_nn_bf16"
    assert hopper.gemm(a[:, :0], b[:0]).eq(0).all()
    assert hopper.launched()["kernel"] == "gt_gemm_nn_bf16"


def test_products_that_hopper_does_not_take(hopper, kernels, driver, fail):
    half = torch.bfloat16
    a, b = torch.ones(2, 16, 72, dtype=half), torch.ones(72, 24, dtype=half)
    words = "not for the kernel of sm_90a: matrices of a batch are not one behind the other"
    with pytest.raises(ValueError, match=words):
        hopper.gemm(a, b.expand(2, 72, 24), path="sm_90a")
    with pytest.raises(ValueError, match="path sm_70 is none of auto, sm_80, sm_90a"):
        hopper.gemm(a[0], b, path="sm_70")
    fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(native.CudaError, match=r"mapping a tensor of \[1, 16, 72\] with strides"):
        hopper.gemm(a[0], b)
    driver.stand_in_capability(80)
    with pytest.raises(ValueError, match="not for the kernel of sm_90a: the device is of sm_80"):
        kernels.gemm(a[0], b, path="sm_90a")


def test_products_that_no_kernel_takes(kernels):
    a, b = torch.ones(16, 8, dtype=torch.bfloat16), torch.ones(8, 8, dtype=torch.bfloat16)
    assert kernels.multiplies(a, b)
    for one, other in (
        (a.float(), b.float()),
        (a[:, :4], b[:4]),  # what stands side by side is no multiple of 8
        (a[:, 1:], b[1:]),  # begins between two chunks
        (a.mT, torch.ones(8, 16, dtype=torch.bfloat16).mT),  # both transposed
        (a, b.half()),
        (a, b[0]),
    ):
        assert not kernels.multiplies(one, other)
    with pytest.raises(ValueError, match="gemm: no kernel multiplies"):
        kernels.gemm(a, a)
    with pytest.raises(ValueError, match=re.escape("gemm: bias (4,) for 8 columns")):
        kernels.gemm(a, b, bias=torch.ones(4, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="gemm: residual"):
        kernels.gemm(a, b, residual=torch.ones(8, 16, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="activation tanh is none of"):
        kernels.gemm(a, b, activation="tanh")
    matrix, place = (16, 8, 0), (0, 0, 0)
    rest = (0, place, 16, False, 4, 8, 8)
    options = (1, 1.0, "none", 0)
    for layout, dtype, left, words in (
        ("tt", "bfloat16", matrix, "layout tt is none of nn, nt, tn"),
        ("nn", "bfloat16", (8, 8, 0), "a has 8 elements side by side, 8 from row to row"),
        ("nn", "bfloat16", (16, 4, 0), "a has 8 elements side by side, 4 from row to row"),
    ):
        with pytest.raises(ValueError, match=words):
            kernels._cuda.gemm(layout, dtype, (left, matrix, *rest), *options)
    with pytest.raises(TypeError, match="no CUDA kernel multiplies float32"):
        kernels._cuda.gemm("nn", "float32", (matrix, matrix, *rest), *options)
    assert kernels.gemm(a[:0], b).shape == (0, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", cuda_cases.ATTENTIONS, ids=str)
def test_attention_and_its_gradients(kernels, case, dtype):
    cuda_cases.check_attention(kernels, case, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", cuda_cases.ATTENTIONS, ids=str)
def test_attention_and_its_gradients_on_hopper(hopper, case, dtype):
    cuda_cases.check_attention(hopper, case, dtype)


def test_hopper_chooses_attention_by_the_operands(hopper):
    query, key = torch.ones(1, 2, 130, 72).bfloat16(), torch.ones(1, 1, 5, 72).bfloat16()
    how = cuda_attention.How(0.125)
    results = hopper.attention.forward(query, key, key, how)
    launched = hopper.launched()
    # Two tiles of each head, on four processors.
    names = ("kernel", "grid", "block")
    expected = ["gt_attention_sm90_128_bf16", [4, 1, 1], [384, 1, 1]]
    assert [launched[name] for name in names] == expected
    assert torch.equal(results[0], torch.ones_like(query))
    hopper.attention.backward(results[0], (query, key, key), results, how)
    launched = hopper.launched()
    expected = ["gt_attention_grad_key_sm90_128_bf16", [1, 1, 1], [384, 1, 1]]
    assert [launched[name] for name in names] == expected
    # One key for all positions: no tensor copy takes a stride of 0.
    hopper.attention.forward(query, key[:, :, :1].expand(1, 1, 5, 72), key, how)
    assert hopper.launched()["kernel"] == "gt_attention_128_bf16"
    hopper.attention.forward(query, key, key, cuda_attention.How(-1.0))
    assert hopper.launched()["kernel"] == "gt_attention_128_bf16"


def test_attention_is_one_launch_and_its_gradient_three(kernels):
    query, key = torch.ones(1, 2, 130, 72).bfloat16(), torch.ones(1, 1, 5, 72).bfloat16()
    how = cuda_attention.How(0.125)
    results = kernels.attention.forward(query, key, key, how)
    launched = kernels.launched()
    assert (launched["kernel"], launched["grid"]) == ("gt_attention_128_bf16", [2, 2, 1])
    assert torch.equal(results[0], torch.ones_like(query))
    kernels.attention.backward(results[0], (query, key, key), results, how)
    launched = kernels.launched()
    assert (launched["kernel"], launched["grid"]) == ("gt_attention_grad_key_128_bf16", [1, 1, 1])


def test_attention_that_no_kernel_takes(kernels):
    attention, how = kernels.attention, cuda_attention.How(1.0)
    x = torch.ones(1, 2, 3, 8, dtype=torch.float16)
    assert attention.takes(x, x, x)
    for query, key, words in (
        (x.float(), x.float(), "takes torch.float32"),
        (x, torch.ones(1, 3, 3, 8).half(), "takes the shapes"),
        (x[0], x[0], "takes the shapes"),
        (x[..., :4], x[..., :4], "a head size that is no multiple of 8 up to 128"),
        (x, torch.ones(1, 2, 3, 9).half()[..., 1:], "has rows that 16 bytes do not copy"),
    ):
        assert not attention.takes(query, key, key)
        with pytest.raises(ValueError, match=words):
            attention.forward(query, key, key, how)
    with pytest.raises(ValueError, match=re.escape("seeds (2,), query (1, 2, 3, 8)")):
        attention.forward(x, x, x, cuda_attention.How(1.0, seeds=torch.ones(2).long()))
    seeds = torch.ones(1, 2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=re.escape("dropout_p 1 is not in (0, 1)")):
        attention.forward(x, x, x, cuda_attention.How(1.0, seeds=seeds, dropout_p=1.0))
    good, odd, rest = (16, 8, 8, 8), (8, 8, 8, 8), ((0, 0.0, False, 1.0), (16, 16), 0)
    launch, sizes = kernels._cuda.attention, (1, 2, 2, 4, 4, 8)
    with pytest.raises(ValueError, match="2 heads that share the keys of 3"):
        launch("float16", (1, 2, 3, 4, 4, 8), (good, good, good), *rest)
    with pytest.raises(ValueError, match="key begins at address 8 and has 8, 8 and 8 elements"):
        launch("float16", sizes, (good, odd, good), *rest)
    with pytest.raises(TypeError, match="attention: no CUDA kernel takes float32"):
        launch("float32", sizes, (good, good, good), *rest)


def test_rows_of_a_worker_draw_on_the_device(kernels):
    """Bits equal those of a worker without kernels, and every draw is one launch."""
    box = ((4, 3), (5, 9), (1, 2))
    places = (5, -3, *box[1:])
    x = torch.randn(box[0])
    ours, theirs = (
        creation.Random(CPU, CudaOperators(kernels, "auto")),
        creation.Random(CPU),
    )
    rows = [
        ("uniform", (box[0], torch.bfloat16, 0.0, 1.0)),
        ("normal", (box[0], torch.float64, 0.0, 1.0)),
        ("randint", (box[0], torch.int16, -5, 100)),
        ("bernoulli", (box[0], torch.float32, 0.5)),
        ("dropout", (x, 0.5)),
        ("dropout", (x.double(), 0.5)),
        ("like", (x, box[0], torch.float32, "normal", 0.0, 1.0)),
    ]
    for name, operands in rows:
        launched = kernels.launches
        made = getattr(ours, name)(*operands, *places)
        expected = getattr(theirs, name)(*operands, *places)
        torch.testing.assert_close(made, expected, rtol=0, atol=0)
        assert kernels.launches == launched + 1, name
        kernels.forget()
    deep = (1,) * 9  # more dims than a launch takes
    assert torch.equal(
        ours.normal(deep, torch.float32, 0.0, 1.0, 1, 2),
        theirs.normal(deep, torch.float32, 0.0, 1.0, 1, 2),
    )


def test_a_worker_checks_the_kernels_before_it_uses_them(kernels, capsys):
    assert cuda_kernels.checked(kernels, native) is kernels

    class Other:
        """A host whose numbers are other ones."""

        uniform = staticmethod(lambda out, *_: out.fill(0))
        normal = uniform

    kernels.forget()
    assert cuda_kernels.checked(kernels, Other) is None
    assert "uniform random numbers differ from those of the CPU" in capsys.readouterr().err


# ---- launches: shape, stream, device, arguments ----


def test_a_launch_has_its_stream_device_and_arguments(library, driver):
    kernels = Played(library, driver, device_index=2, stream=0x5EED)
    kernels.fill("uniform", torch.empty(2, 3), Place(5, -1, (4, 7), (1, 2)), 0.0, 1.0)
    launched = kernels.launched()
    out, elements, box, stream, span = launched["arguments"].split(" ")
    assert launched | {"arguments": ""} == {
        "kernel": "gt_uniform_f32",
        "grid": [1, 1, 1],
        "block": [256, 1, 1],
        "shared": 0,
        "stream": 0x5EED,
        "device": 2,
        "attributes": [],
        "arguments": "",
    }
    assert struct.unpack("<Q", bytes.fromhex(out)) == (kernels.known[0][0],)
    assert struct.unpack("<q", bytes.fromhex(elements)) == (6,)
    # corner 1 * 7 + 2, runs of 3 in one counted dim of 2 rows, 7 elements apart
    corner, run, dims, *rest = struct.unpack("<qqI4x16q", bytes.fromhex(box))
    assert (corner, run, dims, rest[0], rest[8]) == (9, 3, 1, 2, 7)
    assert struct.unpack("<QQ", bytes.fromhex(stream)) == (5, 2**64 - 1)
    low, wide, below = struct.unpack("<fff", bytes.fromhex(span))
    assert (low, wide) == (0, 1)
    assert 1 - 2**-23 < below < 1
    kernels.forget()


def test_kernels_are_loaded_once_for_each_device(library, driver):
    cuda = native.Cuda(str(library), IMAGES)
    before = driver.stand_in_loads()
    for device in (0, 0, 1, 1):
        kernels = Played(library, driver, device_index=device)
        kernels._cuda = cuda
        kernels.fill("normal", torch.empty(4), Place(1, 2), 0.0, 1.0)
        kernels.forget()
    assert driver.stand_in_loads() - before == 2


def test_the_environment_has_the_schedules_seed(kernels, driver, monkeypatch):
    def steps(seed):
        monkeypatch.setenv("GT_EMULATOR_SEED", seed)
        kernels.rows.rms_norm(torch.ones(4, 64), torch.ones(64), 1e-5)
        return driver.stand_in_steps()

    counts = [steps(seed) for seed in ("0", "7", "8", "7", "0")]
    assert counts[:2] == counts[4:2:-1]
    assert len({*counts}) == 3
    monkeypatch.delenv("GT_EMULATOR_SEED")
    kernels.rows.rms_norm(torch.ones(4, 64), torch.ones(64), 1e-5)
    assert driver.stand_in_steps() == counts[0]
    for word in ("", "-1", "7x", str(2**64)):
        with pytest.raises(native.CudaError, match=f"GT_EMULATOR_SEED={word}: expected a number"):
            steps(word)


def launch_all_that_share(kernels, hopper, dtype):
    """Every kernel with dynamic shared memory, of small operands."""

    def operand(*shape):
        return torch.zeros(shape, dtype=dtype)

    for width in (64, 128):
        x, how = operand(1, 1, 2, width), cuda_attention.How(1.0)
        for on in (kernels, hopper):
            results = on.attention.forward(x, x, x, how)
            on.attention.backward(x, (x, x, x), results, how)
    for columns in (24, 264):  # of Hopper's tiles of 128 and of 256 columns
        for a, b in (
            (operand(16, 8), operand(8, columns)),
            (operand(16, 8), operand(columns, 8).mT),
            (operand(8, 16).mT, operand(8, columns)),
        ):
            hopper.gemm(a, b, path="sm_90a")
            kernels.gemm(a, b, path="sm_80")
            kernels.grouped_gemm([(a, b)])


def test_launches_ask_for_the_shared_memory_of_the_table(kernels, hopper, driver):
    """Sizes of the headers' tiles, in real launches; each fits into a block."""
    for dtype in (torch.bfloat16, torch.float16):
        launch_all_that_share(kernels, hopper, dtype)
    launched = json.loads(driver.stand_in_shared())
    assert {name: launched.get(name) for name in DYNAMIC_SHARED} == DYNAMIC_SHARED
    lines = (CUDA / "resources.txt").read_text().splitlines()[1:]
    fixed = {(name, on): int(size) for name, on, _, size, _ in map(str.split, lines)}
    assert {*DYNAMIC_SHARED} <= {name for name, _ in fixed}
    limits = {"sm_80": 163 * 1024, "sm_90a": 227 * 1024}  # CUDA C++ Programming Guide, of a block
    for (name, on), size in fixed.items():
        assert size + DYNAMIC_SHARED.get(name, 0) <= limits[on], (name, on)


def test_adamw_packs_its_numbers(kernels):
    step = AdamwStep(0.5, 0.25, 0.75, 1e-3, 0.125, 2)
    tensors = [[torch.ones(2)] for _ in range(4)]
    kernels.adamw(*tensors, step)
    table, count, numbers = kernels.launched()["arguments"].split(" ")
    assert struct.unpack("<I", bytes.fromhex(count)) == (1,)
    packed = struct.unpack("<7f", bytes.fromhex(numbers))
    assert packed == pytest.approx((0.5, 0.25, 0.75, 1e-3, 0.125, 1 - 0.25**2, 1 - 0.75**2))
    assert struct.unpack("<Q", bytes.fromhex(table))[0] != 0


def test_what_the_benchmark_times_is_the_same_on_both_sides(kernels):
    """benchmarks/gpu/kernels.py, with small operands, once."""
    path = Path(__file__).parent.parent.parent / "benchmarks" / "gpu" / "kernels.py"
    spec = importlib.util.spec_from_file_location("gpu_kernels", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    torch.manual_seed(0)
    names = []
    for case in benchmark.cases(kernels, benchmark.Sizes((16,), (20,), 1, 5, 16, 24, 2)):
        ours, theirs = case.ours(), case.theirs()
        names.append(case.name)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1, msg=case.name)
        kernels.forget()
    assert len(names) == 13


# ---- collectives: ranks of one process, as kernels may be played ----


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_collectives(kernels, ranks):
    shared = cuda_cases.group_of(kernels, ranks, range(ranks))
    cuda_cases.check_collectives(shared.group)
    launched = kernels.launched()
    assert (launched["kernel"], launched["grid"]) == ("gt_all_gather_b32", [2, ranks, 1])
    assert launched["attributes"] == [2]  # cooperative
    shared.close()


def test_messages(kernels):
    shared = cuda_cases.group_of(kernels, 3, range(3))
    cuda_cases.check_exchange(shared.group)
    shared.close()


def test_a_rank_that_never_comes_is_named(kernels, driver):
    sizes = dataclasses.replace(cuda_cases.GROUP_SIZES, timeout_seconds=1e-4)
    shared = cuda_cases.group_of(kernels, 3, range(2), sizes)
    group = shared.group
    assert driver.stand_in_opened() == 1
    group.all_reduce([torch.ones(4), torch.ones(4)])
    with pytest.raises(TimeoutError, match=r"rank 0 waited 0\.0001 s for rank 2"):
        group.check()
    shared.close()
    assert driver.stand_in_opened() == 0


def ranks_of_processes(library, ranks, *dying):
    """Processes of tests/cuda/cuda_rank.py, which have each other's handles; what each has printed.

    Args:
        library: The stand-in of CUDA's driver.
        ranks: How many.
        dying: The collective in which the last one dies, and after which part of it; none.
    """
    script = str(Path(__file__).with_name("cuda_rank.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(library), str(rank), str(ranks), *dying],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        handles = "".join(process.stdout.readline().strip() for process in processes)
        for process in processes:
            process.stdin.write(handles + "\n")
            process.stdin.flush()
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return said, [process.returncode for process in processes]


def test_collectives_between_processes(library):
    said, codes = ranks_of_processes(library, 2)
    assert codes == [0, 0], "\n".join(said)
    assert said == ["all right\n"] * 2


@pytest.mark.parametrize("name", cuda_rank.COLLECTIVES)
def test_a_process_that_is_killed_in_a_collective_is_named_to_the_other(library, name):
    said, codes = ranks_of_processes(library, 2, name, "0.01")
    assert codes == [0, -signal.SIGKILL], "\n".join(said)
    assert said[0] == "rank 0 waited 0.01 s for rank 1\n"


def test_collectives_that_no_kernel_runs(kernels):
    shared = cuda_cases.group_of(kernels, 2, range(2))
    group = shared.group
    with pytest.raises(ValueError, match="2000 elements of 4 bytes for 2 ranks, root 0, through"):
        group.all_gather([torch.ones(2000)] * 2)
    with pytest.raises(ValueError, match="3 rows for 2 ranks"):
        group.reduce_scatter([torch.ones(3)] * 2)
    with pytest.raises(TypeError, match="no CUDA kernel sums int32"):
        group.all_reduce([torch.ones(3, dtype=torch.int32)] * 2)
    with pytest.raises(TypeError, match="no CUDA kernel moves bool"):
        group.broadcast([torch.ones(3, dtype=torch.bool)] * 2, 0)
    with pytest.raises(ValueError, match="rank 0 of 2 and 2, 3 elements"):
        group.exchange([(2, torch.ones(3)), None], [None, None])
    shared.close()
    with pytest.raises(ValueError, match="a group has up to 8"):
        cuda_cases.group_of(kernels, 9, range(9))
    with pytest.raises(ValueError, match="a handle of shared memory has 64 bytes, not 3"):
        kernels._cuda.open_shared(0, b"abc")


# ---- what goes wrong ----


def test_no_driver_and_no_function_are_named():
    with pytest.raises(native.CudaError, match=r"no CUDA driver: libgt-none\.so"):
        native.Cuda("libgt-none.so", {})
    with pytest.raises(native.CudaError, match=r"libm\.so\.6 has no cuInit"):
        native.Cuda("libm.so.6", {})


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            "cuModuleLoadDataEx",
            209,
            "loading the kernels of random.cu: CUDA_ERROR_NO_BINARY_FOR_GPU (209): no kernel image",
        ),
        (
            "cuModuleLoadDataEx",
            218,
            "random.cu (ptxas: line 1 is no PTX): CUDA_ERROR_INVALID_PTX (218)",
        ),
        (
            "cuLaunchKernelEx",
            2,
            "launching gt_normal_f32: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory",
        ),
        ("cuDevicePrimaryCtxRetain", 2, "using CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuModuleGetFunction", 500, "finding the kernel gt_normal_f32 in random.cu"),
        ("cuCtxPushCurrent_v2", 12345, "making the device current: an error without a name"),
    ],
)
def test_a_failed_call_says_what_and_why(kernels, fail, call, code, text):
    fail(call, code)
    with pytest.raises(native.CudaError, match=re.escape(text)):
        kernels.fill("normal", torch.empty(4), Place(1, 2), 0.0, 1.0)


def test_a_driver_without_a_device_is_refused(library, fail):
    fail("cuInit", 100)
    with pytest.raises(native.CudaError, match="starting CUDA's driver: CUDA_ERROR_NO_DEVICE"):
        native.Cuda(str(library), IMAGES)


def test_a_build_without_the_image_says_so(library, driver):
    kernels = Played(library, driver)
    kernels._cuda = native.Cuda(str(library), {})
    with pytest.raises(native.CudaError, match=r"this build has no CUDA image of random\.cu"):
        kernels.fill("normal", torch.empty(4), Place(1, 2), 0.0, 1.0)
    kernels.forget()


def test_a_fault_of_a_kernel_is_reported(kernels):
    """The emulator's findings come through the driver's error text."""
    kernels.is_written = False
    with pytest.raises(native.CudaError, match=r"launching gt_rms_norm_f32: .*uninitialized read"):
        kernels.rows.rms_norm(torch.ones(2, 8), torch.ones(8), 1e-5)


def test_operands_are_checked(kernels):
    place = Place(1, 2)
    with pytest.raises(native.CudaError, match=r"uniform: an operand is not memory of a CUDA"):
        native.Cuda.uniform(
            kernels._cuda, torch.empty(4).data_ptr(), "float32", [4], 1, 2, 0, 1, [4], [0], 0
        )
    with pytest.raises(ValueError, match=r"out \(3, 2\) with strides \(1, 3\) is not contiguous"):
        kernels.fill("uniform", torch.empty(2, 3).t(), place, 0.0, 1.0)
    with pytest.raises(TypeError, match=r"no CUDA kernel fills int64"):
        kernels.fill("uniform", torch.empty(2, dtype=torch.int64), place, 0.0, 1.0)
    with pytest.raises(TypeError, match=r"no CUDA kernel knows the dtype int8"):
        kernels.fill("uniform", torch.empty(2, dtype=torch.int8), place, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"uniform: low 1 is not at most high 0"):
        kernels.fill("uniform", torch.empty(2), place, 1.0, 0.0)
    with pytest.raises(TypeError, match=r"weight has dtype torch.float32, the CUDA kernel takes"):
        kernels.rows.rms_norm(torch.ones(2, 3).half(), torch.ones(3), 1e-5)
    with pytest.raises(TypeError, match=r"no CUDA kernel of rows takes torch.float64"):
        kernels.rows.rms_norm(torch.ones(2, 3, dtype=torch.float64), torch.ones(3), 1e-5)
    with pytest.raises(ValueError, match=r"rms_norm: a parameter \(4,\) for 3"):
        kernels.rows.rms_norm(torch.ones(2, 3), torch.ones(4), 1e-5)
    with pytest.raises(ValueError, match=r"targets \(3,\) do not fit 2 rows"):
        kernels.rows.cross_entropy(torch.ones(2, 3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"adamw: the table of 2 tensors takes 96 bytes, not 8"):
        kernels._cuda.adamw([(1, 1, 1, 1, 1)] * 2, 1, 8, 0, 0, 0, 0, 0, 1, 1, 0)
    with pytest.raises(ValueError, match=r"has no rows with elements"):
        kernels.rows.rms_norm(torch.ones(2, 0), torch.ones(0), 1e-5)


def test_operands_on_two_devices_are_refused(library, driver, kernels):
    other = Played(library, driver, device_index=1)
    there, here = torch.ones(2, 8), torch.ones(8)
    addresses = (other.address("x", there, torch.float32), 0)
    addresses += (kernels.address("weight", here, torch.float32), 0, 0)
    with pytest.raises(ValueError, match=r"rms_norm: operands are on the CUDA devices 1 and 0"):
        kernels._cuda.rms_norm("float32", (2, 8), (*addresses, addresses[0]), (0, 0), 1e-5, 0)
    other.forget()


def test_a_worker_without_them_says_why_once_and_uses_pytorch(monkeypatch, capsys):
    assert cuda_kernels.open_for(CPU) is None
    assert capsys.readouterr().err == ""
    device = torch.device("cuda", 0)
    assert cuda_kernels.open_for(device) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gt.worker: PyTorch runs in place of GT's own CUDA kernels: ")
    monkeypatch.setenv("GT_KERNELS", "off")
    assert cuda_kernels.open_for(device) is None
    assert capsys.readouterr().err == ""
