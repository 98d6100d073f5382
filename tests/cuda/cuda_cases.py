"""Expected results of GT's CUDA kernels on any device: a GPU (tests/gpu), or the emulator behind a
stand-in of the driver (test_cuda_kernels.py).
"""

from __future__ import annotations

import importlib

import torch
from torch.nn import functional

from gt.worker.cuda import attention, collectives
from gt.worker.cuda.kernels import AdamwStep
from gt.worker.pytorch import dropout_attention
from gt.worker.random_place import Place

KINDS = [
    *(("uniform", dtype, (-2.0, 3.0)) for dtype in ("float32", "float64", "float16", "bfloat16")),
    *(("normal", dtype, (1.0, 2.0)) for dtype in ("float32", "float64", "float16", "bfloat16")),
    ("integers", "int64", (-7, 10**12)),
    ("integers", "int32", (-7, 1_000_000_007)),
    ("bernoulli", "bool", (0.3,)),
    ("dropout_mask", "bool", (0.25,)),
]
# Shape, whole shape and start: all of it, one element, none, boxes cut in one dim and in each.
BOXES = [
    ((7, 13), None, None),
    ((), None, None),
    ((3, 0), None, None),
    ((5, 6), (9, 17), (3, 5)),
    ((2, 3, 5), (4, 9, 11), (1, 2, 6)),
]
SEED, DRAW = 0x299F31D0_A4093822, 0x03707344_13198A2E  # digits of pi


def place_of(box):
    shape, whole, start = box
    return shape, Place(SEED, DRAW, whole, start)


def check_random(kernels, kind, name, limits, box):
    """The bits of the CPU's kernels."""
    shape, place = place_of(box)
    dtype = getattr(torch, name)
    assert kernels.fills(kind, dtype, shape)
    made = kernels.fill(
        kind, torch.empty(shape, dtype=dtype, device=kernels.device), place, *limits
    )
    expected = torch.empty(shape, dtype=dtype)
    host = importlib.import_module("gt._kernels")
    array = (expected.view(torch.uint16) if dtype == torch.bfloat16 else expected).numpy()
    whole, start = place.box(shape)
    getattr(host, kind)(array, *place.words, *limits, list(whole), list(start))
    bits = {2: torch.int16}.get(dtype.itemsize, dtype)
    assert torch.equal(made.cpu().view(bits), expected.view(bits))


def check_dropout(kernels, p):
    shape, place = place_of(BOXES[3])
    x = _normal(*shape, seed=1)
    x[0, :3] = torch.tensor([float("inf"), float("nan"), -0.0])
    out, keep = kernels.dropout(x.to(kernels.device), p, place)
    mask = torch.empty(shape, dtype=torch.bool)
    whole, start = place.box(shape)
    host = importlib.import_module("gt._kernels")
    host.dropout_mask(mask.numpy(), *place.words, p, list(whole), list(start))
    assert torch.equal(keep.cpu(), mask)
    expected = x * mask * (0.0 if p == 1 else 1 / (1 - p))
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def _normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2 + 0.5


# Relative and absolute tolerance of results in each dtype.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def check_cross_entropy(kernels, rows, columns, dtype):
    """Includes an ignored row, as by PyTorch's ignore_index."""
    logits = _normal(rows, columns, seed=2).to(dtype)
    targets = torch.arange(rows) * 7 % columns
    targets[rows // 2] = -100
    device = kernels.device
    there = logits.to(device), targets.to(device)
    loss, gradient, log_probs = kernels.rows.cross_entropy(*there, 1 / rows, keeps_log_probs=True)
    wide = logits.double().requires_grad_()
    expected = functional.cross_entropy(wide, targets, reduction="none")
    expected.mean().backward()
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    assert gradient.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(gradient.cpu().double(), wide.grad, rtol=tolerance, atol=1e-6)
    expected_probs = wide.detach().log_softmax(1)
    bounds = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(log_probs.cpu().double(), expected_probs, **bounds)
    assert kernels.rows.cross_entropy(*there)[1:] == (None, None)
    check_cross_entropy_backward(kernels, log_probs, targets)


def check_cross_entropy_backward(kernels, log_probs, targets):
    """From what the forward pass has kept: a gradient for each row, or one for all and a total."""
    rows, columns = log_probs.shape
    device, dtype = kernels.device, log_probs.dtype
    slopes = log_probs.cpu().double().exp()
    slopes -= functional.one_hot(targets.clamp(min=0), columns)
    slopes[targets < 0] = 0
    each = _normal(rows, seed=9).to(dtype)
    one, total = torch.tensor(-1.5).to(dtype), torch.tensor(float(rows)).to(dtype)
    for grad, by in ((each, None), (one, total)):
        expected = slopes * grad.double().reshape(-1, 1) / (1 if by is None else rows)
        there = None if by is None else by.to(device)
        operands = (grad.to(device), log_probs, targets.to(device), there)
        made = kernels.rows.cross_entropy_backward(*operands)
        assert made.dtype == dtype
        bounds = {"rtol": TOLERANCES[dtype], "atol": 1e-6}
        torch.testing.assert_close(made.cpu().double(), expected, **bounds)


def _norm(kind, x, parameters):
    of_kind = functional.rms_norm if kind == "rms_norm" else functional.layer_norm
    return of_kind(x, x.shape[-1:], *parameters, eps=1e-5)


def check_norm(kernels, kind, shape, dtype, *, residual):
    """A norm and its gradients. With a residual their sum is used besides, as in a transformer."""
    device, columns = kernels.device, shape[-1]
    x = _normal(*shape, seed=3).to(dtype)
    other = _normal(*shape, seed=4).to(dtype) if residual else None
    parameters = [_normal(columns, seed=5).to(dtype), _normal(columns, seed=6).to(dtype)]
    parameters = parameters[: 1 if kind == "rms_norm" else 2]
    there = [None if one is None else one.to(device) for one in (other, *parameters)]
    run = getattr(kernels.rows, kind)
    out, total = run(x.to(device), *there[1:], 1e-5, there[0])
    summed = x if other is None else x + other
    torch.testing.assert_close(total.cpu(), summed, rtol=0, atol=0)
    wide = [one.double().requires_grad_() for one in (summed, *parameters)]
    expected = _norm(kind, wide[0], wide[1:])
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(out.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    grad, besides = _normal(*shape, seed=7).to(dtype), _normal(*shape, seed=8).to(dtype)
    torch.autograd.backward((expected, wide[0]), (grad.double(), besides.double() * residual))
    bias = there[2] if len(there) == 3 else None
    from_elsewhere = besides.to(device) if residual else None
    made = kernels.rows.norm_backward(grad.to(device), total, there[1], bias, 1e-5, from_elsewhere)
    for ours, theirs in zip(made, wide, strict=False):
        scale = theirs.grad.abs().max().item()
        bounds = {"rtol": tolerance, "atol": 4 * tolerance * max(1.0, scale)}
        torch.testing.assert_close(ours.cpu().double(), theirs.grad, **bounds)
    assert (made.bias is None) == (bias is None)
    again = kernels.rows.norm_backward(grad.to(device), total, there[1], bias, 1e-5, from_elsewhere)
    pairs = zip(made[: len(wide)], again, strict=False)
    assert all(torch.equal(one, other) for one, other in pairs)


def check_adamw(kernels, shapes, steps=3):
    """Some steps of a group, as torch.optim.AdamW takes them in float64."""
    device = kernels.device
    starts = [_normal(*shape, seed=10 + i) for i, shape in enumerate(shapes)]
    wide = [start.double().requires_grad_() for start in starts]
    optimizer = torch.optim.AdamW(wide, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    parameters = [start.to(device) for start in starts]
    means = [torch.zeros_like(one) for one in parameters]
    squares = [torch.zeros_like(one) for one in parameters]
    for step in range(1, steps + 1):
        gradients = [_normal(*shape, seed=100 * step + i) for i, shape in enumerate(shapes)]
        for parameter, gradient in zip(wide, gradients, strict=True):
            parameter.grad = gradient.double()
        optimizer.step()
        numbers = AdamwStep(0.01, 0.9, 0.95, 1e-8, 0.1, step)
        kernels.adamw(parameters, [one.to(device) for one in gradients], means, squares, numbers)
    for made, expected in zip(parameters, wide, strict=True):
        torch.testing.assert_close(made.cpu().double(), expected.detach(), rtol=1e-5, atol=1e-6)


# m, k, n, batches: within a tile, beyond one, a depth of many stages.
PRODUCTS = [(40, 72, 24, ()), (8, 8, 136, ()), (136, 136, 16, ()), (16, 24, 8, (3,))]
# m, k, n, batches beyond a pair of Hopper's tiles, and a depth that goes round its ring of stages.
HOPPER_PRODUCTS = [*PRODUCTS, (264, 520, 136, ()), (16, 72, 264, (2,))]


def _stored(kernels, shape, dtype, seed):
    *rest, columns = shape
    return _normal(*rest, columns + 8, seed=seed).to(kernels.device, dtype)[..., :columns]


def _factors(kernels, size, layout, dtype):
    m, k, n, batch = size
    shapes = (m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)
    factors = [_stored(kernels, (*batch, *s), dtype, 20 + i) for i, s in enumerate(shapes)]
    turned = zip(factors, layout, strict=True)
    return [factor if order == "n" else factor.mT for factor, order in turned]


def check_gemm(kernels, size, layout, dtype, path="auto"):
    """The product of operands with gaps between their rows, and what follows it."""
    m, k, n, batch = size
    a, b = _factors(kernels, size, layout, dtype)
    assert kernels.multiplies(a, b)
    wide = [x.cpu().double() for x in (a, b)]
    tolerance = 2.0 ** (-7 if dtype == torch.bfloat16 else -10)
    product = wide[0] @ wide[1]
    torch.testing.assert_close(
        kernels.gemm(a, b, path=path).cpu().double(), product, rtol=tolerance, atol=tolerance
    )
    bias = _normal(n, seed=22).to(kernels.device, dtype)
    residual = _stored(kernels, (*batch, m, n), dtype, 23)
    expected = functional.gelu(product / 4 + bias.cpu().double()) + residual.cpu().double()
    options = {"bias": bias, "residual": residual, "activation": "gelu", "scale": 0.25}
    made = kernels.gemm(a, b, out_dtype=torch.float32, path=path, **options)
    assert made.dtype == torch.float32
    # k sums in float32 of terms whose magnitudes add up to `terms`: roundings walk at random.
    terms = wide[0].abs() @ wide[1].abs()
    bound = 2 * k**0.5 * torch.finfo(torch.float32).eps * options["scale"] * terms
    error = (made.cpu().double() - expected).abs() - 1e-5 * expected.abs()
    assert (error <= bound.clamp(min=1e-4)).all(), (error - bound).max()


def check_grouped_gemm(kernels, sizes, layout):
    pairs = [_factors(kernels, (*size, ()), layout, torch.bfloat16) for size in sizes]
    results = kernels.grouped_gemm(pairs)
    assert len(results) == len(pairs)
    for made, (a, b) in zip(results, pairs, strict=True):
        expected = a.cpu().double() @ b.cpu().double()
        torch.testing.assert_close(made.cpu().double(), expected, rtol=2.0**-7, atol=2.0**-7)


# b, h, heads of keys, t, s, k, whether causal, probability of dropping.
ATTENTIONS = [
    (1, 2, 1, 33, 70, 64, False, 0.0),
    (2, 1, 1, 50, 50, 40, True, 0.25),
    (1, 2, 2, 20, 36, 128, True, 0.0),
    (1, 2, 1, 18, 33, 96, False, 0.5),
    (1, 1, 1, 0, 5, 64, False, 0.0),
    (1, 1, 1, 5, 0, 64, False, 0.0),
]


def check_attention(kernels, case, dtype):
    """Operands have the layout of a layer's projections; compared with PyTorch in float64."""
    b, h, key_heads, t, s, k, is_causal, p = case
    sizes = ((h, t), (key_heads, s), (key_heads, s), (h, t))
    query, key, value, grad = (
        (_normal(b, rows, heads, k, seed=30 + i) / 2).to(kernels.device, dtype).transpose(1, 2)
        for i, (heads, rows) in enumerate(sizes)
    )
    generator = torch.Generator().manual_seed(40)
    seeds = torch.randint(-(2**63), 2**63 - 1, (b, h, t), generator=generator)
    scale = k**-0.5
    how = attention.How(scale, is_causal, seeds.to(kernels.device) if p else None, p)
    assert kernels.attention.takes(query, key, value)
    results = kernels.attention.forward(query, key, value, how)
    made = kernels.attention.backward(grad, (query, key, value), results, how)
    wide = [x.cpu().double().requires_grad_() for x in (query, key, value)]
    shared = [x.repeat_interleave(h // key_heads, 1) for x in wide[1:]]
    expected, total = _attention(wide[0], *shared, how, seeds)
    expected.backward(grad.cpu().double())
    torch.testing.assert_close(results[1].cpu().double(), total, rtol=1e-5, atol=1e-5)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1.25e-3
    pairs = [(results[0], expected), *zip(made, (x.grad for x in wide), strict=True)]
    for ours, theirs in pairs:  # csrc/README.md, "Attention on tensor cores", has these bounds
        error = ours.cpu().double() - theirs
        largest = theirs.abs().max() if theirs.numel() else 0
        assert error.isfinite().all()
        assert (error.abs() <= tolerance * max(1.0, largest)).all(), (error.abs().max(), largest)
        assert error.norm() <= tolerance * theirs.norm(), (error.norm(), theirs.norm())
    again = kernels.attention.backward(grad, (query, key, value), results, how)
    assert all(torch.equal(x, y) for x, y in zip(made, again, strict=True))


def _attention(query, key, value, how, seeds):
    """In float64, with the weights that the seeds keep."""
    scores = query @ key.mT * how.scale
    if how.is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)
    if how.seeds is not None:
        kept = dropout_attention.kept(seeds, key.shape[2], how.dropout_p)
        weights = weights * kept / (1 - how.dropout_p)
    return weights @ value, scores.logsumexp(-1).detach()


# Sizes of the tests' groups: small enough for several chunks and for both kinds of all-reduce.
GROUP_SIZES = collectives.Sizes(4096, 256, 2, 256, 5.0)


class SharedGroup:
    """A group whose regions are shared by CUDA IPC.

    Args:
        gather: Gives every process the handles of all, joined in the order of ranks.
    """

    def __init__(self, kernels, ranks, own, gather, sizes):
        self._cuda = kernels.on.cuda
        self._index = kernels.on.device.index or 0
        _, total = collectives.layout(ranks, sizes)
        self._allocated = [self._cuda.allocate(self._index, total) for _ in own]
        handles = gather(b"".join(self._cuda.share(self._index, one) for one in self._allocated))
        self._opened = {
            rank: self._cuda.open_shared(self._index, handles[64 * rank : 64 * rank + 64])
            for rank in range(ranks)
            if rank not in own
        }
        own_regions = dict(zip(own, self._allocated, strict=True))
        regions = [(own_regions | self._opened)[rank] for rank in range(ranks)]
        errors = [torch.zeros(2, dtype=torch.int32, device=kernels.on.device) for _ in own]
        self.group = collectives.CudaGroup(kernels.on, own, regions, errors, sizes)

    def close(self):
        """Gives the memory back, when all ranks are done with it."""
        for address in self._opened.values():
            self._cuda.close_shared(self._index, address)
        for address in self._allocated:
            self._cuda.release(self._index, address)


def group_of(kernels, ranks, own, sizes=GROUP_SIZES):
    """A group; the memory of processes that are not there is this process' too."""
    return SharedGroup(kernels, ranks, own, lambda handles: (handles * ranks)[: ranks * 64], sizes)


def check_collectives(group):
    """All collectives by turns, on a group whose ranks are all here: values and equal bits."""
    ranks, device = group.ranks, group.device
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows in (1, 50):
            inputs = [_normal(ranks * rows, 3, seed=i).to(device, dtype) for i in range(ranks)]
            total = sum(x.float() for x in inputs).to(dtype)  # in the order of ranks
            assert all(torch.equal(x, total) for x in group.all_reduce(inputs))
            parts = group.reduce_scatter(inputs)
            assert torch.equal(torch.cat(parts), total)
            joined = torch.cat(inputs)
            assert all(torch.equal(x, joined) for x in group.all_gather(inputs))
            made = group.broadcast(inputs, ranks - 1)
            assert all(torch.equal(x, inputs[-1]) for x in made)
    group.check()
    words = [torch.arange(5, device=device) + i * 2**40 for i in range(ranks)]
    assert all(torch.equal(x, torch.cat(words)) for x in group.all_gather(words))


def check_exchange(group):
    """Round a ring, in several chunks, then from one rank to another only."""
    ranks, device = group.ranks, group.device
    for dtype in (torch.bfloat16, torch.int32, torch.float64):
        inputs = [_normal(150, seed=i).mul(1000).to(device, dtype) for i in range(ranks)]
        outputs = [torch.empty_like(x) for x in inputs]
        sends = [((rank + 1) % ranks, inputs[rank]) for rank in range(ranks)]
        receives = [((rank - 1) % ranks, outputs[rank]) for rank in range(ranks)]
        group.exchange(sends, receives)
        group.check()
        assert all(torch.equal(outputs[rank], inputs[rank - 1]) for rank in range(ranks))
        nobody = [None] * (ranks - 2)
        group.exchange([(1, inputs[0]), None, *nobody], [None, (0, outputs[1]), *nobody])
        assert torch.equal(outputs[1], inputs[0])
    group.check()
