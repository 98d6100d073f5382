"""GT's own CUDA kernels on a GPU: the checks that test_cuda_kernels.py makes under the emulator."""

import cuda_cases
import pytest
import torch

from gt.worker.cuda import kernels as cuda_kernels
from gt.worker.cuda.operators import CudaOperators
from gt.worker.pytorch import creation

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def kernels():
    made = cuda_kernels.open_for(torch.device("cuda", 0))
    assert made is not None, "the worker says why on stderr"
    return made


LARGE = ((1000, 1003), (2000, 3000), (17, 5))


@pytest.mark.parametrize("box", [*cuda_cases.BOXES, LARGE], ids=str)
@pytest.mark.parametrize(("kind", "name", "limits"), cuda_cases.KINDS)
def test_random_numbers_have_the_bits_of_the_cpu(kernels, kind, name, limits, box):
    cuda_cases.check_random(kernels, kind, name, limits, box)


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_is_pytorchs(kernels, p):
    cuda_cases.check_dropout(kernels, p)


@pytest.mark.parametrize("dtype", cuda_cases.TOLERANCES, ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (4, 65), (512, 50257)])
def test_cross_entropy_and_its_gradient(kernels, rows, columns, dtype):
    cuda_cases.check_cross_entropy(kernels, rows, columns, dtype)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dtype", cuda_cases.TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 40), (1024, 4096)])
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_norms_and_their_gradients(kernels, kind, shape, dtype, residual):
    cuda_cases.check_norm(kernels, kind, shape, dtype, residual=residual)


def test_adamw_updates_a_group_in_one_launch(kernels):
    cuda_cases.check_adamw(kernels, [(3, 5), (1,), (0,), (300,), (1000, 999)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", [*cuda_cases.PRODUCTS, (1000, 2048, 1032, ())], ids=str)
def test_products(kernels, size, layout, dtype):
    cuda_cases.check_gemm(kernels, size, layout, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("path", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("size", [*cuda_cases.HOPPER_PRODUCTS, (4104, 1032, 4104, ())], ids=str)
def test_products_of_each_kernel(kernels, size, path, layout, dtype):
    if path == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("sm_90a's code runs on sm_90 only")
    cuda_cases.check_gemm(kernels, size, layout, dtype, path)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_of_a_group(kernels, layout):
    sizes = [(8, 24, 8), (0, 8, 8), (136, 16, 16), (1000, 512, 264)]
    cuda_cases.check_grouped_gemm(kernels, sizes, layout)


LONG = [(2, 4, 2, 1000, 1003, 64, True, 0.1), (1, 8, 1, 515, 2048, 128, False, 0.0)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", [*cuda_cases.ATTENTIONS, *LONG], ids=str)
def test_attention_and_its_gradients(kernels, case, dtype):
    cuda_cases.check_attention(kernels, case, dtype)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_collectives_of_ranks_on_one_device(kernels, ranks):
    shared = cuda_cases.group_of(kernels, ranks, range(ranks))
    cuda_cases.check_collectives(shared.group)
    shared.close()


def test_messages_of_ranks_on_one_device(kernels):
    shared = cuda_cases.group_of(kernels, 3, range(3))
    cuda_cases.check_exchange(shared.group)
    shared.close()


def test_a_worker_draws_on_the_device_without_a_copy(kernels):
    """Whatever the stream: torch's current one is asked for at each launch."""
    random = creation.Random(kernels.device, CudaOperators(kernels, "auto"))
    expected = creation.Random(torch.device("cpu")).normal((999,), torch.float32, 0, 1, 3, 4)
    with torch.cuda.stream(torch.cuda.Stream(kernels.device)):
        made = random.normal((999,), torch.float32, 0.0, 1.0, 3, 4)
        assert torch.equal(made.cpu(), expected)


def test_an_operand_of_the_host_is_refused(kernels):
    with pytest.raises(ValueError, match="x is on cpu"):
        kernels.rows.rms_norm(torch.ones(2, 3), torch.ones(3), 1e-5)
