"""Norms, what divides by them, and their gradients where a vector is zero, beside PyTorch."""

import math

import pytest
import torch

import gt

ROWS = [[0.0, 0.0, 0.0], [3.0, -4.0, 0.0], [1e-4, 0.0, 0.0], [0.5, 2.0, -1.0]]
OTHERS = [[1.0, 2.0, 3.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf, -1.0]
TOTAL_ORDERS = [-math.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, math.inf, "inf"]


def gradients(m, function, *operands, dtype="float64"):
    """The result and the gradient of each operand, as float64 numbers."""
    leaves = [m.tensor(x, dtype=getattr(m, dtype)).requires_grad_() for x in operands]
    result = function(m, *leaves)
    made = m.autograd.grad(result.sum(), leaves)
    return [torch.tensor(x.double().tolist()) for x in (result.detach(), *made)]


def check(function, *operands, dtype="float64", tolerance=1e-9):
    ours, theirs = (gradients(m, function, *operands, dtype=dtype) for m in (gt, torch))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("eps", [1e-12, 1e-3])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("p", ORDERS)
def test_rows_of_zeros_have_the_gradient_of_a_division_by_eps(p, dim, eps):
    check(lambda m, x: m.nn.functional.normalize(x, p=p, dim=dim, eps=eps), ROWS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes(dtype):
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    check(lambda m, x: m.nn.functional.normalize(x), ROWS, dtype=dtype, tolerance=tolerance)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("eps", [1e-8, 1e-2])
def test_cosine_similarity(dim, eps):
    check(lambda m, x, y: m.nn.functional.cosine_similarity(x, y, dim, eps), ROWS, OTHERS)
    check(lambda m, x, y: m.nn.functional.cosine_similarity(x, y[:1], dim, eps), ROWS, OTHERS)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_cosine_embedding_loss(margin):
    def loss(m, x, y):
        target = m.tensor([1.0, -1.0, -1.0, 1.0])
        return m.nn.functional.cosine_embedding_loss(x, y, target, margin)

    check(loss, ROWS, OTHERS)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_distance_of_equal_vectors(p, eps):
    check(lambda m, x: m.nn.functional.pairwise_distance(x, x.detach(), p, eps), ROWS)


@pytest.mark.parametrize(
    "dtypes",
    [("uint8", "float32"), ("float32", "int64"), ("bfloat16", "float64"), ("int32", "bfloat16")],
)
def test_cosine_similarity_computes_in_the_common_dtype(dtypes):
    def cosine(m):
        first = m.tensor([200.0, 100.0, 7.0]).to(getattr(m, dtypes[0]))
        second = m.tensor([3.0, 5.0, 20.0]).to(getattr(m, dtypes[1]))
        return m.nn.functional.cosine_similarity(first, second, dim=0)

    ours, theirs = cosine(gt), cosine(torch)
    assert str(ours.dtype) == str(theirs.dtype).replace("torch", "gt")
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-2 if "bfloat16" in dtypes else 1e-6)
    if ours.dtype == gt.float64:  # no operand is rounded on the way
        assert ours.item() == pytest.approx(0.2660597, abs=1e-7)


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_cosine_similarity_of_integers_is_refused(dtype):
    for m in (torch, gt):
        x = m.ones(2, 3, dtype=getattr(m, dtype))
        with pytest.raises(RuntimeError, match="expected common dtype to be floating point, yet"):
            m.nn.functional.cosine_similarity(x, x)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("order", TOTAL_ORDERS)
def test_total_norm_of_every_order(order, cut):
    def clipped(m):
        parameters = [m.tensor(x).requires_grad_() for x in (ROWS, OTHERS[:2], [5.0])]
        for parameter in parameters:
            parameter.grad = parameter.detach() * 2 - 1
            if cut and m is gt:
                parameter.grad = gt.distribute(parameter.grad, dim=0)
        total = m.nn.utils.get_total_norm([x.grad for x in parameters], order)
        clip = m.nn.utils.clip_grad_norm_(parameters, 0.7, order)
        return [x.tolist() for x in (total, clip, *(x.grad for x in parameters))]

    for mine, other in zip(clipped(gt), clipped(torch), strict=True):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(other), rtol=1e-5, atol=1e-6)
