"""Splits, sets, factors, strides, windows, masked reductions and draws, against PyTorch."""

import numpy as np
import pytest
import torch
from test_nn_generic import LIBRARIES, compare, equal, tensors

import gt

BOX = (4, 6, 5)
# Calls made in both libraries; values, and gradients of operands that require one, must agree.
CALLS = {
    "tensor_split": lambda m, x: (*x.tensor_split(4, 1), *x.tensor_split((1, 3, 9)),
                                  *m.tensor_split(x, m.tensor([2, -1]), dim=2)),
    "tensor_split number": lambda m, x: x.tensor_split(m.tensor(3), dim=-1),
    "hsplit": lambda m, x: (*x.hsplit(3), *m.hsplit(x[0, 0], [2]), *x.hsplit([1, -2])),
    "vsplit": lambda m, x: (*x.vsplit(2), *m.vsplit(x, (3,))),
    "dsplit": lambda m, x: (*x.dsplit(5), *m.dsplit(x, [2, 4])),
    "unsafe": lambda m, x: (*m.unsafe_chunk(x, 3, 1), *x.unsafe_split(4, 1),
                            *x.unsafe_split_with_sizes([1, 3], 0)),
    "unravel_index": lambda m, x: (*m.unravel_index(m.tensor([[3], [23]]), (2, 3, 4)),
                                   *m.unravel_index(m.tensor(4), 7)),
    "unique": lambda m, x: (m.unique(x.long()), *m.unique(x.long(), True, True, True),
                            *x.long()[0].unique(return_counts=True, dim=1)),
    "unique_consecutive": lambda m, x: (m.unique_consecutive(x.long()),
                                        *x.long().unique_consecutive(True, True),
                                        x.long()[0].unique_consecutive(dim=0)),
    "cdist": lambda m, x: (m.cdist(x, x[:1] * 2), m.cdist(x[0], x[1] + 1, p=1.5),
                           m.cdist(x[0], x[1], compute_mode="use_mm_for_euclid_dist")),
    "block_diag": lambda m, x: m.block_diag(x[0], x[1, 0], x[0, 0, 0]),
    "cartesian_prod": lambda m, x: (m.cartesian_prod(x[0, 0], x[1, :, 0], x[2, 2]),
                                    m.cartesian_prod(x[0, 0])),
    "atleast_3d": lambda m, x: (m.atleast_3d(x), m.atleast_3d(x[0]),
                                *m.atleast_3d(x[0, 0], x[0, 0, 0])),
    "positive": lambda m, x: (m.positive(x), x.positive()),
    "linalg.diagonal": lambda m, x: (m.linalg.diagonal(x),
                                     m.linalg.diagonal(x, offset=1, dim1=0, dim2=1)),
    "as_strided": lambda m, x: (x.as_strided((3, 4), (2, 5), 7),
                                m.as_strided(x, (2, 2, 2), (1, 1, 1)),
                                m.as_strided_copy(x, (), ())),
    "lu": lambda m, x: m.lu(x[0, :5])[:1],
    "histogramdd": lambda m, x: m.histogramdd(x.detach().reshape(-1, 2), [3, 4])[0],
    "histogramdd range": lambda m, x: (
        *m.histogramdd(x.detach().reshape(-1, 2), [2, 3], range=[0, 1, 0, 2]).bin_edges,
        m.histogramdd(x.detach().reshape(-1, 2), 3, weight=x.detach()[:, :3].reshape(-1)).hist,
        m.histogramdd(x.detach().reshape(-1, 2), [m.tensor([0.0, 1, 2]).double()] * 2,
                      density=True).hist,
    ),
    "masked": lambda m, x: (
        m.masked.sum(x, 1, mask=x > 0), m.masked.mean(x, (0, 2), mask=x[0] > -1),
        m.masked.var(x, mask=x > 0), m.masked.std(x, 1, unbiased=False, keepdim=True),
        m.masked.softmax(x, -1, mask=x > 0), m.masked.norm(x, 3.0, 0, mask=x < 1),
        m.masked.normalize(x, 2.0, 1, mask=x > 0), m.masked.logsumexp(x, 0, mask=x > -2),
        m.masked.amax(x, 0, mask=x < 0), m.masked.argmin(x, 1, mask=x < 0),
        m.masked.median(x, 2, mask=x > -2), m.masked.cumprod(x, 1, mask=x > 0),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_same_expression(name):
    calls = [lambda x, m=m: CALLS[name](m, x) for m in LIBRARIES]
    compare(calls, tensors([BOX]))


def test_a_write_to_as_strided_reaches_its_source():
    x = gt.arange(6.0)
    x.as_strided((2,), (3,)).fill_(9)
    assert x.tolist() == [9, 1, 2, 9, 4, 5]
    x = gt.arange(6.0)
    assert x.as_strided_scatter(gt.tensor([7.0, 8.0]), (2,), (3,)).tolist() == [7, 1, 2, 8, 4, 5]


VIEWS = {
    "transposed": lambda x: (x.t(), (3, 2), (1, 4), None),
    "from the second row": lambda x: (x[1:], (2, 3), (3, 1), None),
    "its own start": lambda x: (x[1:, 1:], (2,), (4,), 5),
    "permuted twice over": lambda x: (x.reshape(2, 3, 2).permute(2, 0, 1), (4, 3), (3, 1), 0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_as_strided_reads_the_memory_of_a_view(name):
    results = []
    for lib in (torch, gt):
        x = lib.arange(12.0).reshape(3, 4).requires_grad_()
        view, size, stride, offset = VIEWS[name](x)
        read = view.as_strided(size, stride, offset)
        (read * read).sum().backward()
        results.append((read.tolist(), x.grad.tolist()))
    assert results[0] == results[1]


def test_as_strided_of_a_detached_part_is_of_what_is_known():
    part = gt.arange(12.0)[4:].detach()
    assert part.as_strided((2,), (1,), 0).tolist() == [0, 1]
    part.requires_grad_()
    with pytest.raises(gt.errors.NotSupported, match="that this view does not show"):
        part.as_strided((2,), (1,), 0)
    copied = part.as_strided((2,), (3,), 5)
    with gt.no_grad(), pytest.raises(RuntimeError, match="is a copy in GT"):
        copied.zero_()
    (copied * copied).sum().backward()
    assert part.grad.tolist() == [0, 10, 0, 0, 16, 0, 0, 0]


def test_gradient_of_as_strided_scatter_is_that_of_what_stays():
    x, source = gt.arange(4.0).requires_grad_(), gt.ones(2, requires_grad=True)
    x.as_strided_scatter(source, (2,), (2,), 1).backward(gt.tensor([1.0, 2, 3, 4]))
    assert (x.grad.tolist(), source.grad.tolist()) == ([1, 0, 3, 0], [2, 4])


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), ()])
def test_resize(shape):
    x = gt.arange(6.0).reshape(2, 3)
    y = x.resize_(shape)
    assert y is x
    kept = min(6, int(np.prod(shape)))
    assert x.shape == shape
    assert x.reshape(-1).tolist()[:kept] == list(range(kept))
    assert gt.zeros(1).resize_as_(x).shape == shape
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        gt.ones(2, requires_grad=True).resize_(1)


@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (2, 7, 7)])
def test_factors_of_low_rank(shape):
    gt.manual_seed(0)
    generator = np.random.default_rng(0)
    array = generator.standard_normal((*shape[:-1], 3)) @ generator.standard_normal((3, shape[-1]))
    (left, values, right), x = gt.svd_lowrank(gt.tensor(array), 4), gt.tensor(array)
    np.testing.assert_allclose(((left * values.unsqueeze(-2)) @ right.mT).numpy(), array, atol=1e-9)
    equal(values[..., :3], torch.linalg.svdvals(torch.tensor(array))[..., :3])
    components = gt.pca_lowrank(x, 3)
    expected = torch.linalg.svdvals(torch.tensor(array - array.mean(-2, keepdims=True)))
    equal(components[1], expected[..., :3])
    mean = x.mean(-2, keepdim=True)
    equal(gt.svd_lowrank(x, 3, M=mean)[1], expected[..., :3])


DRAWS = {
    "cauchy_": ({"median": 2.0, "sigma": 0.5}, lambda x: (np.median(x), 2.0)),
    "log_normal_": ({"mean": 0.3, "std": 0.2}, lambda x: (np.log(x).mean(), 0.3)),
    "geometric_": ({"p": 0.25}, lambda x: (x.mean(), 4.0)),
    "exponential_": ({"lambd": 2.0}, lambda x: (x.mean(), 0.5)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_written_in_place(name):
    options, summary = DRAWS[name]
    gt.manual_seed(3)
    x = gt.empty(20000)
    assert getattr(x, name)(**options) is x
    found, expected = summary(x.numpy())
    assert abs(found - expected) < 0.03 * max(1.0, abs(expected))
    theirs = np.sort(getattr(torch.empty(20000), name)(**options).numpy())
    shares = np.array([0.1, 0.3, 0.5, 0.8, 0.93])
    np.testing.assert_allclose(
        np.quantile(x.numpy(), shares), np.quantile(theirs, shares), rtol=0.1, atol=0.05
    )
    gt.manual_seed(3)
    equal(getattr(gt.empty(20000), name)(**options), torch.from_numpy(x.numpy().copy()))


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 60.0, 2000.0])
def test_poisson(rate):
    gt.manual_seed(1)
    x = gt.poisson(gt.full((4000,), rate)).numpy()
    assert x.dtype == np.float32
    assert (x == np.round(x)).all() and (x >= 0).all()  # noqa: PT018 - one property
    assert abs(x.mean() - rate) <= 5 * np.sqrt(rate / 4000)
    assert abs(x.var() - rate) <= 0.15 * rate


def test_binomial():
    gt.manual_seed(1)
    counts = gt.tensor([0.0, 1.0, 10.0]).expand(3000, 3)
    x = gt.binomial(counts, gt.full((3000, 3), 0.3)).numpy()
    np.testing.assert_allclose(x.mean(0), [0, 0.3, 3], atol=0.12)
    np.testing.assert_allclose(x.var(0), [0, 0.21, 2.1], atol=0.2)
    assert (x.max(0) <= [0, 1, 10]).all()


WRONG = {
    "sections": lambda m, x: x.tensor_split(0),
    "no dimensions": lambda m, x: x[0, 0, 0].tensor_split(2),
    "floats": lambda m, x: x.tensor_split(m.tensor([1.0])),
    "places": lambda m, x: x.tensor_split(m.tensor([[1]])),
    "hsplit": lambda m, x: x.hsplit(4),
    "vsplit": lambda m, x: x[0, 0].vsplit(1),
    "dsplit": lambda m, x: x[0].dsplit(1),
    "mode": lambda m, x: m.cdist(x, x, compute_mode="mm"),
    "vectors": lambda m, x: m.cartesian_prod(x, x),
    "bools": lambda m, x: m.positive(x > 0),
    "rank": lambda m, x: m.pca_lowrank(x[0], 7),
    "iterations": lambda m, x: m.pca_lowrank(x[0], niter=-1),
    "indices": lambda m, x: m.unravel_index(x, (2, 3)),
    "sizes": lambda m, x: m.unravel_index(m.tensor(1), (-2, 3)),
    "window": lambda m, x: m.signal.windows.hann(-1),
    "tau": lambda m, x: m.signal.windows.exponential(3, tau=0),
    "dtype": lambda m, x: m.signal.windows.hann(3, dtype=m.int64),
    "mean": lambda m, x: m.masked.mean(x.long()),
    "repeated": lambda m, x: m.masked.sum(x, (0, 0)),
    "cauchy": lambda m, x: m.empty(2).cauchy_(sigma=0),
    "log_normal": lambda m, x: m.empty(2).log_normal_(std=0),
    "geometric": lambda m, x: m.empty(2).geometric_(1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    texts = []
    for library in (torch, gt):
        (x,) = tensors([BOX])[library is torch]
        with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
            WRONG[name](library, x.detach())
        texts.append((str(caught.value), caught.type))
    (theirs, their_type), (ours, our_type) = texts
    assert issubclass(our_type, their_type)
    assert ours.splitlines()[0].rstrip(".") == theirs.splitlines()[0].rstrip(".")
