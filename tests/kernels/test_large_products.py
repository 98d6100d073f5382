"""Products that are worth several threads run by GT's kernel; their values beside float64."""

import pytest

import gt

torch = pytest.importorskip("torch")

DRAWN = torch.Generator().manual_seed(7)


def drawn(*size, dtype=torch.float32):
    return torch.randn(size, generator=DRAWN).to(dtype)


ARRAYS = [drawn(300, 700).numpy() for _ in range(2)]


@pytest.fixture(params=["2", "1"], ids="threads-{}".format, scope="module")
def threads(request):
    """Number of a worker's threads."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GT_THREADS": request.param, "GT_BACKEND": "pytorch"}.items():
            patch.setenv(name, value)
        patch.setenv("GT_ATEN", "on")
        gt.disconnect()
        yield int(request.param)
        gt.disconnect()


def own_calls():
    return gt.debug.get_worker_stats()[0]["own_calls"]


PRODUCTS = {
    "matrices": lambda lib, a, b: a @ b,
    "of transposed ones": lambda lib, a, b: a.t() @ b.t(),
    "a batch by a matrix": lambda lib, a, b: a.view(4, -1, a.shape[1]) @ b,
    "a part of the columns": lambda lib, a, b: a[:, ::2] @ b[: b.shape[0] // 2],
    "linear": lambda lib, a, b: lib.nn.functional.linear(a, b.t(), b[0]),
    "linear without bias": lambda lib, a, b: lib.nn.functional.linear(a[None], b),
    "linear with a bias of every other number": (
        lambda lib, a, b: lib.nn.functional.linear(a, b, a[0].repeat(2)[::2][: b.shape[0]])
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_values_are_those_of_float64(threads, name):
    a, b = drawn(320, 320), drawn(320, 320)
    program = PRODUCTS[name]
    ours = torch.as_tensor(program(gt, gt.from_torch(a), gt.from_torch(b)).numpy())
    exact = program(torch, a.double(), b.double())
    sizes = program(torch, a.double().abs(), b.double().abs())
    assert ours.shape == exact.shape
    assert ((ours - exact).abs() / sizes).max() < 1e-6


def test_the_kernel_runs_large_ones_only(threads):
    large, small = gt.ones(512, 512), gt.ones(63, 64)
    (large @ large).sum().item()
    before = own_calls()
    for _ in range(5):
        (large @ large)[0, 0].item()
    between = own_calls()
    for _ in range(5):
        (small @ small.t())[0, 0].item()
    assert between - before == 5
    assert own_calls() == between


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_dtypes_stay_pytorchs(threads, dtype):
    a, b = ((drawn(512, 512) * 4).round().to(dtype) for _ in range(2))
    ours = (gt.from_torch(a) @ gt.from_torch(b)).tolist()
    torch.testing.assert_close(torch.tensor(ours, dtype=dtype), a @ b)


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    bits = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("GT_THREADS", threads)
        monkeypatch.setenv("GT_BACKEND", "pytorch")
        gt.disconnect()
        left, right = (gt.from_numpy(x) for x in (ARRAYS[0], ARRAYS[1]))
        bits.append((left @ right.t()).numpy().tobytes())
    gt.disconnect()
    assert bits[0] == bits[1] == bits[2]


def test_vectors_batches_and_mistakes_are_as_before(threads):
    batch, vector = drawn(2, 512, 512), drawn(512)
    for left, right in [(batch, batch), (batch, vector), (vector, batch), (batch[0], vector)]:
        ours = torch.as_tensor((gt.from_torch(left) @ gt.from_torch(right)).numpy())
        torch.testing.assert_close(ours, left @ right, rtol=1e-4, atol=1e-3)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        gt.ones(512, 512) @ gt.ones(511, 512)


def _attended():
    return gt.nn.functional.scaled_dot_product_attention(*[gt.ones(1, 2, 64, 16)] * 3)


def _pooled():
    return gt.nn.functional.max_pool2d(gt.ones(1, 2, 8, 8), 2, return_indices=True)[0]


KERNELS = {
    "a product": lambda: gt.ones(512, 512) @ gt.ones(512, 512),
    "attention": _attended,
    "a recurrent layer": lambda: gt.nn.LSTM(8, 8)(gt.ones(4, 2, 8))[0],
    "a pool": _pooled,
}


@pytest.mark.parametrize("aten", ["on", "off"])
@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_each_kernel_can_be_switched_off_in_each_engine(aten, kernels, monkeypatch):
    settings = {"GT_KERNELS": kernels, "GT_ATEN": aten, "GT_BACKEND": "pytorch"}
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    gt.disconnect()
    for name, program in KERNELS.items():
        program().tolist()  # draws a layer's weights, which is GT's own in any case
        before, drawn = own_calls(), 4 if name == "a recurrent layer" else 0
        program().tolist()
        assert (own_calls() - before > drawn) == (kernels == "auto"), name
    gt.disconnect()
