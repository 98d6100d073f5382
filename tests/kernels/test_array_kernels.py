"""Kernels over arrays of float32 beside float64: values, odd sizes, mistakes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernel_arrays import numbers as _numbers
from kernel_arrays import run
from kernel_module import on_every_path

from gt import _kernels

SIZES = (0, 1, 3, 15, 16, 17, 31, 64, 257, 1000)
EPSILON = float(np.finfo(np.float32).eps)
UNARY = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "exp": torch.exp,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sign": torch.sign,
    "rsqrt": torch.rsqrt,
}
# Functions whose gradient reads the result; the others' gradients read the operand.
BY_RESULT = ("relu", "sigmoid", "tanh")
# Functions with results near a difference of two numbers near 1: compared by absolute error.
BY_ABSOLUTE = ("gelu", "gelu_tanh")
SMALL = 1e-35  # below, 1 + exp(-x) is infinite, in PyTorch's float32 too

pytestmark = on_every_path


def _wide(array):
    return torch.tensor(array, dtype=torch.float64)


def _result(name, *arguments):
    """The first result of a kernel; gelu's approximation stands in its name."""
    base, tanh, backward = name.partition("_tanh")
    if base == "gelu" or name == "gelu_backward":
        name, arguments = base + backward, (*arguments, "tanh" if tanh else "none")
    results = run(_kernels, name, *arguments)
    assert results is not None, (name, arguments)
    return results[0]


def _close(found, wanted, terms=1.0):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=8 * EPSILON, atol=4 * EPSILON * terms)


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_those_of_float64(name):
    for size in SIZES:
        x = _numbers(size) * 3
        _close(_result(name, x), UNARY[name](_wide(x)))


@pytest.mark.parametrize("name", UNARY)
def test_functions_within_four_units_in_the_last_place(name):
    x = np.concatenate([np.linspace(-110, 95, 60_001), np.linspace(-1, 1, 20_001)])
    x = x.astype(np.float32)
    out = _result(name, x)
    wide = UNARY[name](_wide(x)).numpy()
    with np.errstate(over="ignore"):
        rounded = wide.astype(np.float32)
    assert np.array_equal(out[np.isinf(rounded)], rounded[np.isinf(rounded)])
    normal = np.isfinite(rounded) & (np.abs(rounded) > SMALL)
    unit = np.spacing(np.abs(rounded[normal])).astype(np.float64)
    if name in BY_ABSOLUTE:
        unit = np.maximum(unit, EPSILON * np.abs(x[normal]))
    assert np.max(np.abs(out[normal] - wide[normal]) / unit) < 4


@pytest.mark.parametrize("name", UNARY)
def test_infinities_and_what_is_no_number(name):
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, 3e38, -3e38], np.float32)
    if name == "gelu":
        x = x[2:6]  # of the others PyTorch's vector kernel makes NaN and infinity
    out = _result(name, x)
    wanted = UNARY[name](torch.tensor(x)).numpy()
    np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"erf", "exp", "sign", "rsqrt"}))
def test_gradients_of_functions(name):
    for size in SIZES:
        x, grad = _numbers(size) * 2, _numbers(size, 1)[:, 0]
        leaf = _wide(x).requires_grad_()
        result = UNARY[name](leaf)
        (wanted,) = torch.autograd.grad(result, leaf, _wide(grad))
        kept = result.detach().float().numpy() if name in BY_RESULT else x
        _close(_result(f"{name}_backward", grad, kept), wanted, terms=4.0)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_gradients_far_from_zero(name):
    x = np.array([*np.linspace(-40, 40, 4001), 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)
    leaf = _wide(x).requires_grad_()
    (wanted,) = torch.autograd.grad(UNARY[name](leaf).sum(), leaf)
    if name == "gelu_tanh":
        x, wanted = x[:-5], wanted[:-5]  # of the others PyTorch makes NaN
    _close(_result(f"{name}_backward", np.ones_like(x), x), wanted, terms=4.0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("columns", [1, 10, 64, 150, 700, 3000])
def test_rows_have_the_bits_that_each_has_alone(name, columns):
    """Also beside one that is no number."""
    x = _numbers(37, columns) * 5
    x[5, columns // 2] = np.nan
    together = _result(name, x, -1, None)
    alone = [_result(name, x[row : row + 1], -1, None) for row in range(len(x))]
    assert together.tobytes() == b"".join(one.tobytes() for one in alone)
    assert np.isnan(together[5]).all()
    _close(
        np.delete(together, 5, 0), getattr(torch, name)(_wide(np.delete(x, 5, 0)), -1), terms=8.0
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_and_their_gradients(name):
    for columns in SIZES[1:]:
        x, grad = _numbers(5, columns) * 4, _numbers(columns, 5).T.copy()
        leaf = _wide(x).requires_grad_()
        result = getattr(torch, name)(leaf, 1)
        out = _result(name, x, 1, None)
        _close(out, result.detach(), terms=8.0)
        (wanted,) = torch.autograd.grad(result, leaf, _wide(grad))
        for slopes in (grad, np.asfortranarray(grad)):
            _close(_result(f"{name}_backward", slopes, out, -1), wanted, terms=columns)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_infinities_in_rows_and_what_is_no_number(name):
    x = _numbers(5, 37)
    x[0, 3] = np.nan
    x[1, 36] = np.inf
    x[2] = -np.inf
    x[3, ::2] = -np.inf
    x[4, 0] = 200  # the others' exponentials are below the smallest float32
    out = _result(name, x, -1, None)
    _close(out, getattr(torch, name)(_wide(x), 1), terms=8.0)


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_and_its_gradients(affine):
    for columns in SIZES[2:]:
        x, grad = _numbers(6, columns) + 2, _numbers(columns, 6).T.copy()
        weight, bias = (_numbers(columns), _numbers(columns, 1)[:, 0]) if affine else (None, None)
        out, mean, rstd = run(_kernels, "layer_norm", x, weight, bias, (columns,), 1e-5)
        leaves = [None if v is None else _wide(v).requires_grad_() for v in (x, weight, bias)]
        result = F.layer_norm(leaves[0], [columns], leaves[1], leaves[2], 1e-5)
        _close(out, result.detach(), terms=16.0)
        wanted = torch.autograd.grad(result, [v for v in leaves if v is not None], _wide(grad))
        saved = (x, mean, rstd, weight, (columns,))
        grads = run(_kernels, "layer_norm_backward", grad, *saved)
        for found, one in zip(grads, wanted, strict=False):
            _close(found, one, terms=64.0)


def _rms_norm(x, grad, weight, eps, threads=1):
    """The result and 1 / root of rows, then gradients by the input and the weight."""
    forward = run(_kernels, "rms_norm", x, weight, x.shape[1:], eps, threads=threads)
    saved = (grad, x, forward[1], weight, x.shape[1:])
    return *forward, *run(_kernels, "rms_norm_backward", *saved, threads=threads)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("rows", [1, 6, 131])
def test_rms_norm_and_its_gradients(rows, affine):
    """Rows of several tasks too, the last one not full; within 1e-5 of the largest number."""
    for columns in SIZES[1:]:
        x, grad = _numbers(rows, columns) * 3, _numbers(columns, rows).T  # of any strides
        weight = _numbers(columns) if affine else None
        out, rstd, by_x, by_weight = _rms_norm(x, grad, weight, 1e-6)
        leaves = [_wide(v).requires_grad_() for v in (x, weight) if v is not None]
        result = F.rms_norm(leaves[0], [columns], *leaves[1:], eps=1e-6)
        _close(out, result.detach())
        assert rstd.shape == (rows, 1)
        _close(rstd, (_wide(x).square().mean(1, keepdim=True) + 1e-6).rsqrt())
        wanted = torch.autograd.grad(result, leaves, _wide(grad))
        for found, one in zip((by_x, by_weight), wanted, strict=False):
            assert np.abs(found - one.numpy()).max() <= 1e-5 * max(1e-2, one.abs().max())
        _close(by_weight, (_wide(grad) * _wide(x) * _wide(rstd)).sum(0), terms=rows)


def test_rms_norm_of_long_rows_and_of_many():
    """Sums of numbers that all round alike, for which one float32 chain would lose digits."""
    for rows, columns in ((2, 300_000), (20_000, 3)):
        x = np.full((rows, columns), 0.1, np.float32)
        grad = np.full((rows, columns), 0.3, np.float32)
        out, _, _, by_weight = _rms_norm(x, grad, None, 0.0)
        np.testing.assert_allclose(out, 1.0, rtol=1e-5)
        np.testing.assert_allclose(by_weight, rows * float(grad[0, 0]), rtol=1e-5)


def test_rms_norm_of_what_is_no_number_and_of_zeros():
    x = _numbers(4, 37)
    x[0, 3], x[1, 36], x[2] = np.nan, np.inf, 0
    for eps in (0.0, 1e-6):
        out = _rms_norm(x, x, None, eps)[0]
        wanted = F.rms_norm(torch.tensor(x), (37,), None, eps)
        np.testing.assert_allclose(out, wanted.numpy(), rtol=1e-6)


def test_operands_of_rms_norm_that_do_not_fit_are_not_taken():
    x, weight, rstd = _numbers(2, 3), _numbers(3), _numbers(2, 1)
    taken = run(_kernels, "rms_norm", x, weight, (3,), 0.1)
    assert taken is not None
    for call in [
        (x.astype(np.float64), weight, (3,), 0.1), (x, _numbers(2), (3,), 0.1),
        (x, weight, (2,), 0.1), (x, weight, (1, 2, 3), 0.1), (x[:0], weight, (3,), 0.1),
        (x, weight, None, 0.1), (x, weight, (3,), None), ((1.0,), weight, (3,), 0.1),
        (x, weight, (3,)), (x, weight, (3,), 0.1, 0.1),
    ]:  # fmt: skip
        assert run(_kernels, "rms_norm", *call) is None, call
    operands = [x, x, rstd, weight]
    assert run(_kernels, "rms_norm_backward", *operands, (3,)) is not None
    for place in range(4):
        wrong = [_numbers(5) if at == place else one for at, one in enumerate(operands)]
        assert run(_kernels, "rms_norm_backward", *wrong, (3,)) is None


def test_threads_change_no_bit_of_rms_norm():
    x, grad, weight = _numbers(333, 129), _numbers(129, 333).T.copy(), _numbers(129)
    made = [_rms_norm(x, grad, weight, 1e-6, threads) for threads in (1, 3)]
    assert [one.tobytes() for one in made[0]] == [one.tobytes() for one in made[1]]


def test_the_paths_give_the_same_bits_of_rms_norm():
    x, grad, weight = _numbers(70, 259), _numbers(259, 70).T.copy(), _numbers(259)
    made = set()
    for one in _kernels.paths():
        _kernels.set_path(one)
        made.add(b"".join(result.tobytes() for result in _rms_norm(x, grad, weight, 1e-6)))
    assert len(made) == 1


@pytest.mark.parametrize("classes", [1, 10, 33, 1000])
def test_cross_entropy(classes):
    x = _numbers(7, classes) * 4
    target = np.random.default_rng(0).integers(0, classes, 7)
    target[[2, 5]] = -100
    wide = _wide(x)
    for reduction, counted in (("none", 0), ("sum", 5), ("mean", 5)):
        taken = (reduction, -100, 0.0)
        loss, log_probs, count = run(_kernels, "cross_entropy", x, target, None, *taken)
        assert count == counted
        _close(log_probs, torch.log_softmax(wide, 1), terms=8.0)
        wanted = F.cross_entropy(wide, torch.tensor(target), reduction=reduction)
        _close(loss, wanted, terms=16.0 * (1 if reduction == "none" else 7))
    for wrong in (classes, -1):
        target[3] = wrong
        assert run(_kernels, "cross_entropy", x, target, None, "sum", -100, 0.0) is None


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_gradient_of_cross_entropy(reduction):
    x = _numbers(7, 33)
    target = np.array([0, 32, 5, 5, -1, 31, 2])
    log_probs = torch.log_softmax(_wide(x), 1).float().numpy()
    grad = np.array(0.25 if reduction != "none" else [0.25] * 7, np.float32)
    rest = (target, None, np.float32(6.0).reshape(1), reduction, -1, 0.0)
    leaf = _wide(x).requires_grad_()
    loss = F.cross_entropy(leaf, torch.tensor(target), ignore_index=-1, reduction=reduction)
    loss.backward(_wide(grad))
    for shard in ((), (None, None)):
        _close(_result("cross_entropy_backward", grad, log_probs, *rest, *shard), leaf.grad)
    assert run(_kernels, "cross_entropy_backward", grad, log_probs, *rest, 0, 33) is None
    assert run(_kernels, "cross_entropy_backward", grad, log_probs, target + 33, *rest[1:]) is None


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_mean_squared_error_and_its_gradient(reduction):
    for x, y in [(_numbers(7, 33), _numbers(33, 7).T), (_numbers(5), _numbers(5) * 2)]:
        leaf = _wide(x).requires_grad_()
        loss = F.mse_loss(leaf, _wide(y), reduction=reduction)
        _close(_result("mse_loss", x, y, reduction), loss.detach(), terms=x.size)
        grad = np.ones_like(x) if reduction == "none" else np.array(0.5, np.float32)
        loss.backward(_wide(grad))
        _close(_result("mse_loss_backward", grad, x, y, reduction), leaf.grad)


def test_operands_of_rows_that_do_not_fit_are_not_taken():
    x, target = _numbers(5, 6), np.zeros(5, np.int64)
    for call in [
        ("softmax", x.T, -1, None), ("softmax", x, 0, None), ("softmax", x, -1, "float64"),
        ("softmax", x.astype(np.float64), -1, None), ("log_softmax", _numbers(1)[0], 0, None),
        ("softmax_backward", x[:4], x, -1), ("softmax_backward", x, x.T, -1),
        ("layer_norm", x, None, None, (5,), 1e-5), ("layer_norm", x, x[0, :5], None, (6,), 1e-5),
        ("layer_norm", x[:0], None, None, (6,), 1e-5), ("layer_norm", x.T, None, None, (5,), 1e-5),
        ("layer_norm_backward", x, x, x[:, 0], x[:4, 0].copy(), None, (6,)),
        ("cross_entropy", x, target[:4], None, "sum", -100, 0.0),
        ("cross_entropy", x, target, x[0], "sum", -100, 0.0),
        ("cross_entropy", x, target, None, "sum", -100, 0.1),
        ("cross_entropy", x, target.astype(np.int32), None, "sum", -100, 0.0),
        ("mse_loss", x, x[0], "mean"), ("mse_loss", x[:0], x[:0], "sum"), ("mse_loss", x, x, None),
        ("mse_loss_backward", x[0], x, x, "none"), ("mse_loss_backward", x, x, x, "mean"),
        ("cross_entropy_backward", x[:4, 0], x, target, None, x[0, :1], "none", -100, 0.0),
    ]:  # fmt: skip
        assert run(_kernels, *call) is None, call


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_of_adam(amsgrad, decoupled):
    settings = {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": amsgrad}
    param = _numbers(37)
    leaf = _wide(param).requires_grad_()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([leaf], **settings)
    avg, avg_sq = np.zeros(37, np.float32), np.zeros(37, np.float32)
    largest = [np.zeros(37, np.float32)] if amsgrad else []
    for step in range(1, 6):
        grad = _numbers(37, step)[:, 0].copy()
        leaf.grad = _wide(grad)
        optimizer.step()
        lists = ([param], [grad], [avg], [avg_sq], largest)
        _kernels.adam(*lists, 1e-2, 0.8, 0.95, 1e-8, 0.1, step, decoupled, False)
    _close(param, leaf.detach(), terms=8.0)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_of_sgd(momentum, nesterov):
    if nesterov and not momentum:
        pytest.skip("PyTorch has no such step")
    param = _numbers(37)
    leaf = _wide(param).requires_grad_()
    optimizer = torch.optim.SGD(
        [leaf], lr=0.1, momentum=momentum, weight_decay=0.01, nesterov=nesterov, maximize=True
    )
    buffers = [np.zeros(37, np.float32)] if momentum else []
    for step in range(4):
        grad = _numbers(37, step + 1)[:, 0].copy()
        leaf.grad = _wide(grad)
        optimizer.step()
        _kernels.sgd([param], [grad], buffers, 0.1, momentum, 0.0, 0.01, nesterov, True, step == 0)
    _close(param, leaf.detach(), terms=8.0)


def test_a_step_writes_nothing_where_a_later_parameter_does_not_fit():
    params = [_numbers(4), _numbers(5)]
    before = [param.copy() for param in params]
    with pytest.raises(ValueError, match="grads has 4 elements, not"):
        _kernels.sgd(
            params, [params[0], _numbers(2, 2)], [], 0.1, 0.0, 0.0, 0.0, False, False, True
        )
    with pytest.raises(ValueError, match="grads has 1 arrays, not 2"):
        _kernels.sgd(params, [params[0]], [], 0.1, 0.0, 0.0, 0.0, False, False, True)
    assert all((one == two).all() for one, two in zip(params, before, strict=True))


def test_rows_are_added_where_the_index_says():
    table, rows = _numbers(5, 19), _numbers(19, 6).T
    index = np.array([4, 0, 4, 1, 2, 4])
    wanted = table.astype(np.float64)
    for place, row in zip(index, rows, strict=True):
        wanted[place] += row
    _close(_result("index_add", table, index, rows, 0), wanted)
    wanted -= table
    wanted[4] = 0
    _close(_result("embedding_backward", rows, index, 5, 4), wanted)
    for outside in (index + 5, index - 3):
        assert run(_kernels, "index_add", table, outside, rows, 0) is None
        assert run(_kernels, "embedding_backward", rows, outside, 5, 4) is None
    for call in [
        (table, index, rows, 1), (table, index, rows[:5], 0), (table, index, rows[:, :9], 0),
        (table.T, index, rows, 0), (table, index.astype(np.int32), rows, 0),
        (table, index, rows, 0, 2, 5), (table[:0], index[:0], rows[:0], 0),
    ]:  # fmt: skip
        assert run(_kernels, "index_add", *call) is None, call


def test_places_outside_or_of_other_sizes_are_not_taken():
    x, index = _numbers(4, 6), np.zeros((3, 6), np.int64)
    assert run(_kernels, "gather", x, index, 0) is not None
    assert run(_kernels, "scatter", x, index, x, 0) is not None
    for call in [
        ("gather", x, index + 4, 0), ("gather", x, index - 1, 0), ("gather", x, index, 2),
        ("gather", x, np.zeros((5, 6), np.int64), 1), ("gather", x.T, index, 0),
        ("gather", x, index[0], 0), ("gather", x, index, 0, 0, 4),
        ("scatter", x, index, x[:2], 0), ("scatter_add", x, index + 4, x, 0),
        ("scatter", x, index, x.astype(np.float64), 0), ("scatter", x, index, 1.0, 0),
        ("embedding", x, index + 4, None), ("embedding", x[:0], index, None),
        ("embedding", x, index, None, 0, 4), ("index_select", x, index[0] - 1, 0),
        ("index_select", x, index, 0), ("index_select", x, index[0], 1),
    ]:  # fmt: skip
        assert run(_kernels, *call) is None, call


def test_operands_of_functions_that_do_not_fit_are_not_taken():
    x = _numbers(3, 4)
    for call in [
        ("relu", x.astype(np.float64)), ("relu", x.T), ("relu", 2.0), ("relu", x, 1.0), ("relu",),
        ("tanh_backward", x, x[:2]), ("tanh_backward", x.T, x.T), ("relu_backward", x, x.ravel()),
        ("clamp", x, float("nan"), 1.0), ("clamp", x, x, 1.0), ("softplus", x, 1.0, None),
        ("softplus_backward", x, x[:2], 1.0, 20.0), ("leaky_relu", x, "0.1"),
    ]:  # fmt: skip
        assert run(_kernels, *call) is None, call


def test_every_instruction_set_gives_the_same_bits():
    x = _numbers(4, 1001) * 3
    found = {}
    for name in _kernels.paths():
        _kernels.set_path(name)
        outs = [_result(function, x) for function in UNARY]
        outs += [_result(function, x, -1, None) for function in ("softmax", "log_softmax")]
        found[name] = b"".join(out.tobytes() for out in outs)
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("beta", "threshold"), [(1.0, 20.0), (2.0, 3.0), (-0.5, 1.0), (1.0, 200.0)]
)
def test_softplus_and_its_gradient(beta, threshold):
    x = np.concatenate([np.linspace(-120, 60, 20_001), np.linspace(-1, 1, 5_001)])
    x = np.concatenate([x, [np.nan, np.inf, -np.inf, -0.0]]).astype(np.float32)
    grad = _numbers(x.size)
    wide = _wide(x).requires_grad_()
    wanted = torch.where(
        wide * beta > threshold, wide, torch.logaddexp(wide * beta, wide * 0) / beta
    )
    finite = torch.isfinite(wide)
    (slopes,) = torch.autograd.grad(wanted, wide, _wide(grad))
    out = _result("softplus", x, beta, threshold)
    found = out[finite.numpy()]
    exact = wanted.detach()[finite].numpy()
    unit = np.spacing(np.maximum(np.abs(exact), SMALL).astype(np.float32))
    assert np.max(np.abs(found - exact) / unit) < 4
    theirs = F.softplus(torch.tensor(x[-4:]), beta, threshold).numpy()
    np.testing.assert_allclose(out[-4:], theirs, rtol=4 * EPSILON)
    out = _result("softplus_backward", grad, x, beta, threshold)
    _close(out[finite.numpy()], slopes[finite], terms=np.abs(grad).max())
    assert np.isnan(out[-4])
