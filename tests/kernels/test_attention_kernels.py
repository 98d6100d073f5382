"""Attention of gt._kernels beside a softmax in float64, on each instruction set of this machine."""

import math
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernel_arrays import run  # noqa: E402
from kernel_module import load_kernels, on_every_path  # noqa: E402

from gt.worker.reference import random_numbers  # noqa: E402

kernels = load_kernels()


def _expected(query, key, value, mask, grad, *, causal, scale, weight_factors=1.0):
    query, key, value = (x.double().detach().requires_grad_() for x in (query, key, value))
    scores = query @ key.mT * scale
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, -torch.inf)
    blind = (scores == -torch.inf).all(-1, keepdim=True)  # sees nothing: zeros
    output = (scores.masked_fill(blind, 0).softmax(-1) * ~blind * weight_factors) @ value
    grads = torch.autograd.grad(output, (query, key, value), grad.double())
    return output.detach(), scores.logsumexp(-1).detach(), *grads


def _forward(query, key, value, *options, threads=1):
    results = run(kernels, "attention", query, key, value, *options, threads=threads)
    assert results is not None
    return tuple(torch.from_numpy(one) for one in results)


def _run(query, key, value, mask, grad, *, causal, scale, threads, seeds=None, p=0.0):
    options = (mask, seeds, causal, p, scale)
    output, logsumexp = _forward(query, key, value, *options, threads=threads)
    saved = (grad, query, key, value, output, logsumexp)
    grads = run(kernels, "attention_backward", *saved, *options, threads=threads)
    assert grads is not None
    return output, logsumexp, *(torch.from_numpy(one) for one in grads)


def _check(made, expected):
    for name, x, right in zip(("out", "sum", "dq", "dk", "dv"), made, expected, strict=True):
        # An element is a difference of sums, some of which are of this size.
        size = right.nan_to_num(0, 0, 0).abs().flatten().tolist()
        size = max(size, default=0.0) + 0.1
        same = (x == right) | ((x.double() - right).abs() <= 1e-5 * size)
        assert same.all(), (name, (x.double() - right).abs().max())


SIZES = [  # batch, heads, queries, keys, width, width of values
    (1, 2, 5, 6, 8, 8),
    (1, 1, 1, 300, 64, 64),
    (2, 1, 97, 1, 3, 5),
    (2, 3, 100, 130, 64, 64),
    (1, 2, 97, 97, 20, 33),
    (1, 1, 49, 193, 128, 40),
]
# Groups of one to three vectors of queries, full and not, on each instruction set.
SIZES += [(1, 2, queries, 13, 16, 16) for queries in (3, 4, 7, 8, 9, 12, 16, 17, 24, 25)]
SIZES += [(1, 2, queries, 20, 32, 12) for queries in (32, 33, 47, 48, 64, 81)]


@on_every_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients(size, causal):
    b, h, t, s, width, value_width = size
    generator = torch.Generator().manual_seed(t * s)
    query = torch.randn(b, t, h, width, generator=generator).transpose(1, 2)
    key = torch.randn(b, h, width, s, generator=generator).mT
    value = torch.randn(b, 1, s, 2 * value_width, generator=generator)[..., ::2]
    value = value.expand(b, h, s, value_width)
    grad = torch.randn(b, h, 1, value_width, generator=generator).expand(b, h, t, value_width)
    options = {"causal": causal, "scale": 0.3}
    made = _run(query, key, value, None, grad, threads=1, **options)
    _check(made, _expected(query, key, value, None, grad, **options))
    other = _run(query, key, value, None, grad, threads=3, **options)
    assert all(map(torch.equal, made, other)), "threads change bits"


@on_every_path
@pytest.mark.parametrize("queries", [5, 16, 30, 70])
@pytest.mark.parametrize("shape", [(2, 3, 70, 110), (1, 1, 70, 110), (70, 1), (3, 1, 110)], ids=str)
def test_masks(shape, queries):
    generator = torch.Generator().manual_seed(len(shape))
    query, key, value = (torch.randn(2, 3, n, 16, generator=generator) for n in (queries, 110, 110))
    grad = torch.randn(2, 3, queries, 16, generator=generator)
    mask = torch.randn(shape, generator=generator)
    mask = torch.where(mask < -0.5, -torch.inf, mask).expand(2, 3, 70, 110)[:, :, :queries]
    options = {"causal": False, "scale": 0.25}
    made = _run(query, key, value, mask, grad, threads=2, **options)
    _check(made, _expected(query, key, value, mask, grad, **options))


@on_every_path
def test_a_query_has_the_same_bits_in_each_group():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, n, 16, generator=generator) for n in (64, 120, 120))
    options = (None, None, False, 0.0, 0.25)
    whole, _ = _forward(query, key, value, *options)
    for count in range(1, 64):
        first, _ = _forward(query[:, :, :count], key, value, *options)
        assert torch.equal(first, whole[:, :, :count]), count


def _kept(seeds, keys, p):
    """Expected output of attention_kept: a mask of dropout for each query, defined by numpy."""
    place = (0, p, (keys,), (0,))  # draw, probability, shape, start
    rows = [
        random_numbers.dropout_mask((keys,), "bool", seed, *place)
        for seed in seeds.flatten().tolist()
    ]
    kept = np.stack(rows)
    return torch.from_numpy(kept).reshape(*seeds.shape, keys)


DROPPED = [
    (0.1, 100, 130, False),
    (0.5, 97, 97, True),
    (0.9, 1, 301, False),
    (2.0**-32, 8, 5, True),
    (0.3, 20, 7, True),
    (0.3, 40, 99, False),
]


@on_every_path
@pytest.mark.parametrize(("p", "t", "s", "causal"), DROPPED, ids=str)
def test_dropped_weights(p, t, s, causal):
    generator = torch.Generator().manual_seed(t)
    query, key, value = (torch.randn(2, 3, n, 16, generator=generator) for n in (t, s, s))
    grad = torch.randn(2, 3, t, 16, generator=generator)
    seeds = torch.randint(0, 2**63 - 1, (2, t, 3), generator=generator).transpose(1, 2)
    kept = torch.full((2, 3, t, s), fill_value=True)
    kernels.attention_kept(kept, seeds, p)
    assert torch.equal(kept, _kept(seeds, s, p))
    options = {"causal": causal, "scale": 0.25}
    made = _run(query, key, value, None, grad, threads=1, seeds=seeds, p=p, **options)
    factors = kept.double() / (1 - p)
    _check(made, _expected(query, key, value, None, grad, weight_factors=factors, **options))
    other = _run(query, key, value, None, grad, threads=3, seeds=seeds, p=p, **options)
    assert all(map(torch.equal, made, other)), "threads change bits"


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_a_probability_that_is_none(p):
    kept, seeds = torch.ones(1, 2, 3, 4, dtype=torch.bool), torch.ones(1, 2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=re.escape("is not in (0, 1)")):
        kernels.attention_kept(kept, seeds, p)
    with pytest.raises(ValueError, match=re.escape("seeds [1, 2, 3] is not of shape [1, 2, 4]")):
        kernels.attention_kept(torch.ones(1, 2, 4, 4, dtype=torch.bool), seeds, 0.5)
    with pytest.raises(TypeError, match="seeds has dtype float32, not int64"):
        kernels.attention_kept(kept, seeds.float(), 0.5)


@on_every_path
def test_scores_of_any_size():
    query, key = torch.full((1, 1, 3, 4), 1e4), torch.full((1, 1, 200, 4), 1e4)
    key[0, 0, 150] *= 2  # all others have a share of exp(-4e8)
    value = torch.arange(200.0).reshape(1, 1, 200, 1)
    grad = torch.ones(1, 1, 3, 1)
    output, logsumexp, *_ = _run(query, key, value, None, grad, causal=False, scale=1.0, threads=1)
    assert (output == 150).all()
    assert (logsumexp == 8e8).all()


@on_every_path
def test_a_nan_stays():
    query = torch.ones(1, 1, 3, 4)
    query[0, 0, 1, 2] = torch.nan
    key, grad = torch.ones(1, 1, 9, 4), torch.ones(1, 1, 3, 4)
    output, *_ = _run(query, key, key, None, grad, causal=False, scale=1.0, threads=1)
    assert output.isnan().all(-1).flatten().tolist() == [False, True, False]


@on_every_path
def test_nothing_to_do():
    for b, t in ((0, 3), (1, 0)):
        query, key = torch.ones(b, 2, t, 4), torch.ones(b, 2, 5, 4)
        made = _run(query, key, key, None, query, causal=True, scale=1.0, threads=2)
        assert all((x == 0).all() for x in made[3:])
    query, key = torch.ones(1, 2, 3, 4), torch.ones(1, 2, 0, 4)
    output, logsumexp, *_ = _run(query, key, key, None, query, causal=False, scale=1.0, threads=1)
    assert (output == 0).all()
    assert (logsumexp == -torch.inf).all()


Q, K = (1, 2, 3, 4), (1, 2, 5, 4)
OTHERS = {  # query, key, value, mask, seeds
    "fewer heads": (Q, (1, 1, 5, 4), K, None, None),
    "more values than keys": (Q, K, (1, 2, 6, 4), None, None),
    "a query without a batch": (Q[1:], K, K, None, None),
    "keys of another width": (Q, (1, 2, 5, 3), K, None, None),
    "a mask of other scores": (Q, K, K, (3, 4), None),
    "a mask of five dimensions": (Q, K, K, (1, 1, 2, 3, 5), None),
    "seeds of other queries": (Q, K, K, None, (1, 2, 5)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_operands_that_do_not_fit_are_not_taken(name):
    shapes = OTHERS[name]
    operands = [None if s is None else torch.ones(s) for s in shapes]
    if operands[4] is not None:
        operands[4] = operands[4].long()
    assert run(kernels, "attention", *operands, False, 0.5, 1.0) is None


def test_other_dtypes_are_not_taken():
    query, key = torch.ones(Q), torch.ones(K)
    options = (False, 0.0, 1.0)
    assert run(kernels, "attention", query, key, key, None, None, *options) is not None
    for operands in [(query.double(), key, key, None), (query, key, key, torch.ones(3, 5) > 0)]:
        assert run(kernels, "attention", *operands, None, *options) is None
    for p in (0.0, 1.0, math.nan):
        seeds = torch.ones(Q[:3], dtype=torch.int64)
        assert run(kernels, "attention", query, key, key, None, seeds, False, p, 1.0) is None
