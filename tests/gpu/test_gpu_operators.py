"""Operators through GT on a GPU, beside the same expressions of torch on it."""

import pytest

torch = pytest.importorskip("torch")

import gt  # noqa: E402  torch may be absent
from gt.nn import functional  # noqa: E402

pytestmark = pytest.mark.gpu

ELEMENTWISE = [
    "x + y", "x - 2 * y", "x * y", "x / (y.abs() + 1)", "x.exp()", "x.abs().sqrt()", "x.tanh()",
    "x.sigmoid()", "x.relu()", "(x > y).sum()", "x.clamp(-1, 1)", "x.sin() + y.cos()",
]  # fmt: skip
OTHERS = [
    "x @ y.t()", "x.sum(dim=0)", "x.mean(dim=1)", "x.var(dim=1)", "x.max(dim=1).values",
    "x.argmax(dim=1)", "x.softmax(dim=-1)", "x.log_softmax(dim=0)", "x.cumsum(dim=1)",
    "x.logsumexp(dim=1)", "x.t().reshape(-1)[3:50:4]", "x.permute(1, 0).sum(dim=1)",
    "x[1:, ::2]", "x.norm()",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def on_gpu():
    """Workers of torch, which take the GPU where there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GT_BACKEND", "pytorch")
        gt.disconnect()
        yield
        gt.disconnect()


def _both(dtype):
    torch.manual_seed(5)
    return [torch.randn(48, 64, dtype=dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("expression", ELEMENTWISE + OTHERS)
def test_an_expression_gives_what_torch_gives_on_the_device(expression, dtype):
    theirs = dict(zip("xy", _both(getattr(torch, dtype)), strict=True))
    ours = {
        name: gt.tensor(value.double().numpy()).to(getattr(gt, dtype))
        for name, value in theirs.items()
    }
    expected = eval(expression, {name: value.cuda() for name, value in theirs.items()})
    actual = torch.tensor(eval(expression, ours).double().numpy())
    torch.testing.assert_close(
        actual,
        expected.double().cpu(),
        rtol=1e-5 if dtype.endswith(("32", "64")) else 1e-2,
        atol=1e-5,
    )


def test_gradients_of_a_layer_are_torchs():
    torch.manual_seed(7)
    weight, x = torch.randn(16, 32), torch.randn(8, 32)
    theirs = weight.cuda().requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        torch.nn.functional.gelu(x.cuda() @ theirs.t()), torch.arange(8).cuda()
    )
    loss.backward()
    ours = gt.tensor(weight.numpy(), requires_grad=True)
    actual = functional.cross_entropy(
        functional.gelu(gt.tensor(x.numpy()) @ ours.t()), gt.arange(8)
    )
    actual.backward()
    assert actual.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(
        torch.tensor(ours.grad.numpy()), theirs.grad.cpu(), rtol=1e-4, atol=1e-6
    )


def test_values_come_back_as_they_went():
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.float16):
        value = (torch.randn(1000) * 10).to(dtype)
        assert gt.tensor(value.numpy()).numpy().tobytes() == value.numpy().tobytes()


def test_freed_memory_is_taken_again():
    before = gt.debug.get_worker_stats()
    for _ in range(20):
        x = gt.ones(8 << 20)
        x = x * 2 + 1
        assert x[0].item() == 3.0
    del x
    gt.synchronize()
    assert len(gt.debug.get_worker_stats()) == len(before)
