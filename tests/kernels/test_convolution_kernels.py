"""Convolutions and pools beside PyTorch in float64: values, gradients, odd sizes, mistakes."""

import numpy as np
import pytest
from kernel_arrays import numbers as _numbers
from kernel_module import on_every_path

from gt import _kernels

torch = pytest.importorskip("torch")
F = torch.nn.functional

POISON = np.float32(7777.0)
# Relative to the sum of the terms' sizes, which is what rounding is relative to.
TOLERANCE = 1e-5
# Images, weight, groups; window: kernel, stride, padding, dilation.
CASES = [
    ((2, 3, 9, 11), (4, 3, 3, 3), 1, [3, 3, 1, 1, 0, 0, 1, 1]),
    ((1, 4, 8, 7), (6, 2, 3, 2), 2, [3, 2, 2, 1, 1, 0, 1, 1]),
    ((3, 6, 5, 5), (6, 1, 1, 5), 6, [1, 5, 1, 3, 0, 2, 1, 1]),
    ((2, 5, 12, 10), (7, 5, 2, 2), 1, [2, 2, 1, 1, 1, 1, 3, 2]),
    ((2, 33, 13, 17), (19, 33, 1, 1), 1, [1, 1, 1, 1, 0, 0, 1, 1]),
    ((2, 8, 6, 6), (4, 4, 1, 1), 2, [1, 1, 2, 2, 1, 1, 1, 1]),
    ((2, 16, 1, 701), (9, 16, 1, 7), 1, [1, 7, 1, 2, 0, 3, 1, 1]),
    ((1, 64, 60, 61), (24, 64, 3, 3), 1, [3, 3, 1, 1, 1, 1, 1, 1]),  # several blocks
    ((1, 1, 4, 4), (1, 1, 4, 4), 1, [4, 4, 1, 1, 2, 2, 1, 1]),
    ((0, 3, 6, 6), (2, 3, 3, 3), 1, [3, 3, 1, 1, 0, 0, 1, 1]),
]

pytestmark = on_every_path


def _poisoned(shape):
    """An array in the midst of another, at an odd address, all poison; and that other one."""
    count = int(np.prod(shape))
    whole = np.full(count + 6, POISON, np.float32)
    return whole, whole[3 : 3 + count].reshape(shape)


def _assert_filled(whole, out, expected, terms):
    assert (whole[:3] == POISON).all()
    assert (whole[-3:] == POISON).all()
    error = np.abs(out - expected.numpy())
    assert (error <= TOLERANCE * terms.numpy() + 1e-30).all(), error.max()


def _settings(window, groups):
    names = dict(zip(("stride", "padding", "dilation"), range(2, 8, 2), strict=True))
    return {name: tuple(window[at : at + 2]) for name, at in names.items()} | {"groups": groups}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("image", "filters", "groups", "window"), CASES)
def test_convolution_and_gradients(image, filters, groups, window, threads):
    x, weight, bias = _numbers(*image), _numbers(*filters), _numbers(filters[0])
    settings = _settings(window, groups)
    exact = [torch.tensor(one).double().requires_grad_() for one in (x, weight, bias)]
    # Convolution of absolute values: the sum of the sizes of all terms of each result.
    sizes = [torch.tensor(np.abs(one)).double().requires_grad_() for one in (x, weight, bias)]
    wanted, terms = (F.conv2d(*three, **settings) for three in (exact, sizes))
    whole, out = _poisoned(wanted.shape)
    _kernels.conv2d(out, x, weight, bias, window, groups, threads)
    _assert_filled(whole, out, wanted.detach(), terms.detach())
    _kernels.conv2d(out, x, weight, None, window, groups, threads)
    plain = F.conv2d(exact[0], exact[1], **settings).detach()
    _assert_filled(whole, out, plain, terms.detach())

    grad = _numbers(*wanted.shape)
    wanted.backward(torch.tensor(grad).double())
    terms.backward(torch.tensor(np.abs(grad)).double())
    for call, at, other in (("input", 0, weight), ("weight", 1, x)):
        whole, out = _poisoned(exact[at].shape)
        run = getattr(_kernels, f"conv2d_{call}_grad")
        run(out, grad, other, window, groups, threads)
        _assert_filled(whole, out, exact[at].grad, sizes[at].grad)
        again = np.full_like(out, POISON)
        run(again, grad, other, window, groups, 1)
        assert (out == again).all()


@pytest.mark.parametrize("seed", range(25))
def test_random_sizes(seed):
    random = np.random.default_rng(seed)
    groups = int(random.integers(1, 4))
    channels, filters = (int(random.integers(1, 9)) for _ in range(2))
    numbers = [random.integers(low, high, 2) for low, high in ((1, 5), (1, 4), (0, 3), (1, 3))]
    window = [int(number) for pair in numbers for number in pair]
    least = [window[6 + dim] * (window[dim] - 1) + 1 for dim in range(2)]
    height, width = (int(random.integers(max(size, 1), size + 30)) for size in least)
    image = (int(random.integers(1, 4)), channels * groups, height, width)
    weight = (filters * groups, channels, window[0], window[1])
    test_convolution_and_gradients(image, weight, groups, window, int(random.integers(1, 4)))


POOLS = [
    ((3, 9, 11), [3, 3, 2, 2, 1, 1], False),
    ((2, 8, 7), [2, 3, 2, 2, 1, 0], True),
    ((5, 1, 700), [1, 4, 1, 3, 0, 2], True),
    ((70, 12, 12), [2, 2, 2, 2, 0, 0], False),
    ((1, 5, 5), [5, 5, 1, 1, 2, 2], False),
]


@pytest.mark.parametrize("divisor", [None, 7])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(("picture", "window", "ceil"), POOLS)
def test_means_of_windows(picture, window, ceil, counts, divisor):
    x = _numbers(*picture)
    pairs = [tuple(window[at : at + 2]) for at in range(0, 6, 2)]
    exact, sizes = (torch.tensor(one).double().requires_grad_() for one in (x, np.abs(x)))
    wanted, terms = (F.avg_pool2d(one, *pairs, ceil, counts, divisor) for one in (exact, sizes))
    for threads in (1, 3):
        rest = ([*window, 1, 1], counts, divisor or 0, threads)
        whole, out = _poisoned(wanted.shape)
        _kernels.avg_pool(out, x, *rest)
        _assert_filled(whole, out, wanted.detach(), terms.detach())
        grad = _numbers(*wanted.shape)
        exact.grad = sizes.grad = None
        wanted.backward(torch.tensor(grad).double(), retain_graph=True)
        terms.backward(torch.tensor(np.abs(grad)).double(), retain_graph=True)
        whole, out = _poisoned(picture)
        _kernels.avg_pool_backward(out, grad, *rest)
        _assert_filled(whole, out, exact.grad, sizes.grad)


@pytest.mark.parametrize(("picture", "window", "ceil"), POOLS)
def test_gradients_of_largest_numbers(picture, window, ceil):
    pairs = [tuple(window[at : at + 2]) for at in range(0, 6, 2)]
    x = torch.tensor(_numbers(*picture)).double().requires_grad_()
    wanted, places = F.max_pool2d(x, *pairs, 1, ceil, return_indices=True)
    grad = _numbers(*wanted.shape)
    wanted.backward(torch.tensor(grad).double())
    for threads in (1, 3):
        whole, out = _poisoned(picture)
        _kernels.max_pool_backward(out, grad, places.numpy(), threads)
        _assert_filled(whole, out, x.grad, torch.full_like(x, 5.0))


def test_what_does_not_fit_is_refused():
    x, weight, out = np.zeros((1, 2, 4, 4)), np.zeros((3, 2, 2, 2)), np.zeros((1, 3, 3, 3))
    x, weight, out = (one.astype(np.float32) for one in (x, weight, out))
    window = [2, 2, 1, 1, 0, 0, 1, 1]
    _kernels.conv2d(out, x, weight, None, window)
    with pytest.raises(
        ValueError, match=r"result has the shape \[1, 3, 3, 3\], not \[1, 3, 2, 3\]"
    ):
        _kernels.conv2d(out, x, weight, None, [2, 2, 1, 1, 0, 0, 2, 1])
    with pytest.raises(ValueError, match="bias has the shape"):
        _kernels.conv2d(out, x, weight, np.zeros(2, np.float32), window)
    for groups in (0, 2, 3):
        with pytest.raises(ValueError, match="do not fit a window"):
            _kernels.conv2d(out, x, weight, None, window, groups)
    for wrong in ([2, 2, 0, 1, 0, 0, 1, 1], [2, 2, 1, 1, -1, 0, 1, 1], [2, 2, 1, 1, 0, 0, 1, 0]):
        with pytest.raises(ValueError, match="a window has no number"):
            _kernels.conv2d(out, x, weight, None, wrong)
    with pytest.raises(ValueError, match="threads 0"):
        _kernels.conv2d(out, x, weight, None, window, 1, 0)
    with pytest.raises(TypeError):
        _kernels.conv2d(out, x.astype(np.float64), weight, None, window)
    with pytest.raises(ValueError, match="do not fit a window"):
        _kernels.avg_pool(out[0], x[0], window, True, 0)
    places = np.full((2, 2, 2), 16)
    with pytest.raises(ValueError, match="index 16 is in no picture"):
        _kernels.max_pool_backward(x[0], np.zeros((2, 2, 2), np.float32), places)
