"""gt.autocast: values and dtypes of PyTorch's, regions, kept casts, gradients, functions."""

import threading
import warnings

import pytest
import torch
from same_program import check

import gt
from gt.autograd import Function


def weights(t):
    w = (t.arange(12.0).reshape(4, 3) / 7 - 0.8).requires_grad_()
    x = (t.arange(8.0).reshape(2, 4) / 3 - 1.0).requires_grad_()
    return w, x


def layers(t):
    """Products, a norm, a softmax and a loss, with gradients of leaves in float32."""
    w, x = weights(t)
    with t.autocast("cpu"):
        h = x @ w
        n = t.nn.functional.layer_norm(h, (3,))
        s = n.softmax(-1)
        loss = t.nn.functional.mse_loss(s, t.ones(2, 3))
        entropy = t.nn.functional.cross_entropy(h, t.tensor([0, 2]))
    (loss + entropy).backward()
    return h, n, s, loss, entropy, w.grad, x.grad


def nested(t):
    w, x = weights(t)
    found = []
    with t.autocast("cpu"):
        found.append(x @ w)
        with t.autocast("cpu", enabled=False):
            found += [x @ w, t.is_autocast_enabled("cpu")]
            with t.autocast("cpu", dtype=t.float16, cache_enabled=False):
                found += [x @ w, str(t.get_autocast_dtype("cpu")).removeprefix("torch.")[-7:]]
        found += [x @ w, t.is_autocast_enabled("cpu"), t.is_autocast_enabled("cuda")]
    return [*found, x @ w, t.is_autocast_enabled("cpu")]


def decorated(t):
    w, x = weights(t)

    @t.autocast("cpu")
    def product(a, b):
        return a @ b

    return product(x, w), x @ w


def promoted(t):
    low, high = t.ones(2, dtype=t.bfloat16), t.ones(2)
    with t.autocast("cpu"):
        return t.cat([low, high]), t.stack([low, low]), t.cat([high.double(), low])


def mixed(t):
    with t.autocast("cpu"):
        return t.cat([t.ones(2, dtype=t.float16), t.ones(2)])


def kept(t):
    """Twice through one parameter: both gradients arrive, with and without kept casts."""
    found = []
    for cache in (True, False):
        w, x = weights(t)
        with t.autocast("cpu", cache_enabled=cache):
            (x @ w).sum().backward()
            (x.detach() @ w * 2).sum().backward()
        found += [w.grad, x.grad]
    return found


def without_recording(t):
    """A cast that is kept of no_grad is not taken for one that is recorded."""
    w, x = weights(t)
    with t.autocast("cpu"):
        with t.no_grad():
            x @ w
        (x @ w).sum().backward()
    return w.grad, x.grad


def in_place(t):
    x = t.ones(2, 2, dtype=t.bfloat16)
    w, _ = weights(t)
    with t.autocast("cpu"):
        x.exp_()
        y = t.zeros(4, 3).addmm_(t.ones(4, 4), w.detach())
    return x, y


def banned(t):
    with t.autocast("cpu"):
        return t.nn.functional.binary_cross_entropy(t.full((2,), 0.5), t.ones(2))


def own(t):
    """autograd.Function within a region, cast inputs, and a backward that runs as forward did."""
    Base = Function if t is gt else torch.autograd.Function  # noqa: N806
    seen = []

    class Product(Base):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append(t.is_autocast_enabled("cpu"))
            return (g @ b.t()).float(), (a.t() @ g).float()

    class Cast(Base):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
        def forward(ctx, a, b):
            seen.append(t.is_autocast_enabled("cpu"))
            return a @ b

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(t.is_autocast_enabled("cpu"))
            return None, None

    w, x = weights(t)
    with t.autocast("cpu"):
        y = Product.apply(x, w)
        z = Cast.apply(x.bfloat16(), w.bfloat16())
    y.sum().backward()
    z.sum().backward()
    return y, z, w.grad, x.grad, seen


@pytest.mark.parametrize(
    "program",
    [layers, nested, decorated, promoted, mixed, kept, without_recording, in_place, banned, own],
)
def test_it_is_as_in_pytorch(program):
    check(program, tolerance=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_again_within_the_autocast_of_forward(reentrant):
    def program(t):
        w, x = weights(t)
        with t.autocast("cpu"):
            y = t.utils.checkpoint.checkpoint(
                lambda h: (h @ w).tanh() @ t.ones(3, 3), x, use_reentrant=reentrant
            )
        y.sum().backward()
        return y, w.grad, x.grad

    check(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.autocast("meta", dtype=t.bfloat16),
        lambda t: t.autocast(3),
        lambda t: t.amp.custom_fwd(device_type=3),
        lambda t: t.amp.GradScaler(growth_factor=1.0, device="cpu"),
        lambda t: t.amp.GradScaler(backoff_factor=1.0, device="cpu"),
        lambda t: [t.amp.is_autocast_available(kind) for kind in ("cpu", "cuda", "meta", "mps")],
        lambda t: [str(t.get_autocast_dtype(kind))[-8:] for kind in ("cpu", "cuda", "mps", "xpu")],
    ],
)
def test_mistakes_and_answers_are_pytorchs(call):
    check(call)


def test_what_is_no_device_is_refused():
    with pytest.raises(RuntimeError, match=r"Expected one of cpu, cuda.* string: toaster"):
        gt.autocast("toaster")


def test_a_cast_that_is_kept_is_of_one_dtype():
    """PyTorch takes the cast to bfloat16 for that to float16."""
    w, x = weights(gt)
    with gt.autocast("cpu"):
        assert (x @ w).dtype == gt.bfloat16
        with gt.autocast("cpu", dtype=gt.float16):
            assert (x @ w).dtype == gt.float16


def test_a_dtype_that_no_list_has_disables_it():
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported"):
        region = gt.autocast("cpu", dtype=gt.float32)
    with region:
        assert (gt.ones(2, 2) @ gt.ones(2, 2)).dtype == gt.float32


def test_the_list_for_cuda_needs_no_gpu():
    x = gt.ones(2, 2)
    with gt.autocast("cuda"):
        low = x @ x
        assert low.dtype == gt.float16
        assert (low.exp().dtype, low.sum().dtype, (1 / low).dtype) == (gt.float32,) * 3
        with pytest.raises(RuntimeError, match="are unsafe to autocast"):
            gt.nn.functional.binary_cross_entropy(low, low)
        with gt.autocast("cpu", enabled=False):  # of another type of device
            assert (x @ x).dtype == gt.float16
    assert (x @ x).dtype == gt.float32


@pytest.mark.parametrize("kind", ["mps", "xpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_region_of_what_no_tensor_is_on_casts_nothing(kind, dtype):
    def program(t):
        x = t.ones(2, 2)
        with t.autocast(kind, dtype=getattr(t, dtype)):
            dtypes = [x @ x]
            inside = t.is_autocast_enabled(kind)
            with t.autocast("cpu"):
                dtypes.append(x @ x)
                with t.autocast(kind):
                    dtypes.append(x @ x)
                with t.autocast(kind, enabled=False):
                    dtypes.append(x @ x)
        names = [str(y.dtype).partition(".")[2] for y in dtypes]
        return names, inside, t.is_autocast_enabled(kind)

    check(program)


def test_a_parameter_that_is_written_is_cast_again():
    """PyTorch goes on with the cast of what the parameter was."""
    w = gt.ones(1, 1).requires_grad_()
    x = gt.ones(1, 1)
    with gt.autocast("cpu"):
        assert (x @ w).item() == 1
        with gt.no_grad():
            w.mul_(3)
        assert (x @ w).item() == 3


def test_a_parameter_is_cast_once_a_region():
    w, x = weights(gt)
    with gt.autocast("cpu"):
        x @ w
        before = gt._core.stats()["instructions"]
        x.detach() @ w
        assert gt._core.stats()["instructions"] - before == 2  # the cast of x and the product


def test_other_threads_are_not_within_it():
    found = []
    with gt.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append(gt.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
        assert gt.is_autocast_enabled("cpu")
    assert found == [False]


def test_a_pass_within_a_region_computes_in_the_dtypes_of_forward():
    w, x = weights(gt)
    y = (x @ w).sum()
    with gt.autocast("cpu"):
        y.backward()
    expected_w, expected_x = weights(torch)
    (expected_x @ expected_w).sum().backward()
    torch.testing.assert_close(torch.tensor(w.grad.tolist()), expected_w.grad)
    torch.testing.assert_close(torch.tensor(x.grad.tolist()), expected_x.grad)


def test_older_names():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with gt.cuda.amp.autocast(), gt.cpu.amp.autocast():
            assert gt.get_autocast_gpu_dtype() == gt.float16
            assert (gt.ones(1, 1) @ gt.ones(1, 1)).dtype == gt.bfloat16
        assert gt.cuda.amp.GradScaler().get_scale() == 65536.0
    assert {warning.category for warning in seen} == {FutureWarning}
    assert "torch.amp.autocast('cuda', args...)" in str(seen[0].message)
