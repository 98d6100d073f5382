"""Attention as users call it: never all scores in memory, any form's values, PyTorch's words."""

import pytest
import torch
from same_program import check

import gt
from gt.worker.pytorch import dropout_attention, own_kernels

HEADS, LENGTH, WIDTH = 12, 1024, 64
SCORES_BYTES = HEADS * LENGTH * LENGTH * 4  # what a matrix of all scores takes in float32


def test_no_step_holds_the_scores():
    gt.disconnect()  # the peak is that of a worker from its start
    gt.gpu_workers(1)
    leaves = [gt.randn(1, HEADS, LENGTH, WIDTH).requires_grad_() for _ in range(3)]
    gt.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True).sum().backward()
    gt.synchronize()
    peak = gt.debug.get_worker_stats()[0]["bytes_peak"]
    assert 0 < peak < SCORES_BYTES
    query, key, _ = (leaf.detach() for leaf in leaves)
    (query @ key.transpose(-2, -1)).sum().item()
    assert gt.debug.get_worker_stats()[0]["bytes_peak"] > SCORES_BYTES  # the measure sees a matrix


def leaves(t, *shapes):
    numbers = [
        t.linspace(-1, 1, t.Size(shape).numel()).reshape(shape).sin() * (2 + place)
        for place, shape in enumerate(shapes)
    ]
    return [x.detach().requires_grad_() for x in numbers]


FORMS = {
    "three dimensions": ([(4, 5, 8), (4, 6, 8), (4, 6, 8)], {}, None),
    "three dimensions, causal": ([(4, 5, 8), (4, 5, 8), (4, 5, 8)], {"is_causal": True}, None),
    "three dimensions, mask": ([(4, 5, 8), (4, 6, 8), (4, 6, 8)], {}, (5, 6)),
    "three dimensions, mask of heads": ([(4, 5, 8), (4, 6, 8), (4, 6, 8)], {}, (4, 5, 6)),
    "groups": ([(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8)], {"enable_gqa": True}, None),
    "groups of their own": ([(2, 4, 5, 8), (2, 2, 6, 8), (2, 1, 6, 8)], {"enable_gqa": True}, None),
    "groups, causal, three dimensions": (
        [(4, 5, 8), (2, 5, 8), (2, 5, 8)],
        {"enable_gqa": True, "is_causal": True},
        None,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_pytorchs_values_and_gradients(name):
    shapes, options, mask_shape = FORMS[name]

    def program(t):
        operands = leaves(t, *shapes)
        mask = None if mask_shape is None else leaves(t, mask_shape)[0].detach()
        out = t.nn.functional.scaled_dot_product_attention(*operands, attn_mask=mask, **options)
        out.square().sum().backward()
        return out, *(x.grad for x in operands)

    check(program, tolerance=1e-5)


LARGE = (1, 2, 80, 16)  # runs on GT's own kernel by default
OF_THE_KERNEL = {
    "causal": ([LARGE] * 3, {"is_causal": True}, None),
    "mask of queries": ([LARGE, (1, 2, 100, 16), (1, 2, 100, 24)], {}, (80, 100)),
    "groups": ([(2, 4, 70, 8), (2, 2, 90, 8), (2, 2, 90, 8)], {"enable_gqa": True}, None),
}


@pytest.mark.parametrize("name", OF_THE_KERNEL)
def test_own_kernel_has_pytorchs_values_and_gradients(name):
    shapes, options, mask_shape = OF_THE_KERNEL[name]

    def program(t):
        operands = leaves(t, *shapes)
        mask = None if mask_shape is None else leaves(t, mask_shape)[0].detach()
        out = t.nn.functional.scaled_dot_product_attention(*operands, attn_mask=mask, **options)
        out.square().sum().backward()
        return out, *(x.grad for x in operands)

    check(program, tolerance=2e-4)  # gradients are up to 57


# Options, and the dtype: what runs on GT's own kernel by default, and what does not.
DROPPED = {
    "own kernel": ({}, "float32"),
    "own kernel, causal": ({"is_causal": True}, "float32"),
    "plain operators": ({}, "float64"),
    "plain operators, causal": ({"is_causal": True}, "float64"),
    "half precision": ({}, "bfloat16"),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_weights(name):
    """The values are an identity, so that the output is the matrix of all weights."""
    options, dtype = DROPPED[name]
    shape, p, size = (2, 3, 80, 80), 0.25, 80
    gt.manual_seed(5)
    operands = leaves(torch, shape, shape)
    ours = [gt.tensor(x.tolist(), dtype=getattr(gt, dtype)).requires_grad_() for x in operands]
    ours.append(gt.eye(size, dtype=getattr(gt, dtype)).expand(shape).clone().requires_grad_())
    attention = gt.nn.functional.scaled_dot_product_attention
    kept = attention(*ours, dropout_p=p, **options)
    theirs = [torch.from_numpy(x.detach().float().numpy()).requires_grad_() for x in ours]
    weights = torch.nn.functional.scaled_dot_product_attention(*theirs, **options)
    found = torch.from_numpy(kept.detach().float().numpy())
    dropped = (found == 0) & (weights != 0)
    assert abs(dropped.sum() / (weights != 0).sum() - p) < 0.02
    # Equal weights, dropped by hand, must give equal values and gradients.
    scores = theirs[0] @ theirs[1].mT / size**0.5
    if options:
        scores = scores.masked_fill(torch.ones(size, size).triu(1) > 0, -torch.inf)
    expected = (scores.softmax(-1) * ~dropped / (1 - p)) @ theirs[2]
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    torch.testing.assert_close(found, expected.detach(), rtol=tolerance, atol=tolerance)
    kept.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        grad = torch.from_numpy(one.grad.float().numpy())
        torch.testing.assert_close(grad, other.grad, rtol=tolerance, atol=tolerance * 4)
    # Another call drops others; the same seed drops the same.
    assert (attention(*ours, dropout_p=p, **options) != kept).any().item()
    gt.manual_seed(5)
    assert gt.equal(attention(*ours, dropout_p=p, **options), kept)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_step_with_dropout_holds_the_scores(dtype):
    gt.disconnect()
    gt.gpu_workers(1)
    shape = (1, HEADS, LENGTH, WIDTH)
    operands = [gt.randn(shape, dtype=getattr(gt, dtype)).requires_grad_() for _ in range(3)]
    gt.nn.functional.scaled_dot_product_attention(*operands, dropout_p=0.1).sum().backward()
    gt.synchronize()
    peak = gt.debug.get_worker_stats()[0]["bytes_peak"]
    assert 0 < peak < SCORES_BYTES * (1 if dtype == "float32" else 2)


def test_what_is_dropped_follows_from_the_seed_alone(monkeypatch):
    """Without GT's kernels, PyTorch's operators draw the same words."""
    monkeypatch.setenv("GT_KERNELS", "auto")
    draw = torch.Generator().manual_seed(1)
    seeds = torch.randint(-(2**63), 2**63 - 1, (2, 3, 50), generator=draw)
    words = dropout_attention.words(seeds, 33)
    kept = dropout_attention.kept(seeds, 33, 0.3)
    assert torch.equal(kept, words >= -(-3 * 2**32 // 10))
    assert abs(kept.float().mean().item() - 0.7) < 0.02


def test_a_second_derivative_under_dropout():
    gt.manual_seed(2)
    query, key, value = (x.detach().requires_grad_() for x in leaves(gt, *[LARGE] * 3))

    def gradient(x):
        gt.manual_seed(2)
        out = gt.nn.functional.scaled_dot_product_attention(x, key, value, dropout_p=0.2)
        return gt.autograd.grad(out.square().sum(), [x], create_graph=True)[0]

    direction = leaves(gt, LARGE)[0].detach().cos()
    (second,) = gt.autograd.grad((gradient(query) * direction).sum(), [query])
    step = 1e-2
    ahead, behind = (
        gradient((query + sign * step * direction).detach().requires_grad_()).detach()
        for sign in (1, -1)
    )
    numeric = ((ahead - behind) / (2 * step) * direction).sum().item()
    assert (second * direction).sum().item() == pytest.approx(numeric, rel=2e-2)


def test_the_choice_of_kernels_is_taken_down():
    def read(t):
        kernels = t.nn.attention
        states = []

        def look():
            states.append((t.backends.cuda.flash_sdp_enabled(), t.backends.cuda.math_sdp_enabled()))

        look()
        with kernels.sdpa_kernel(kernels.SDPBackend.MATH):
            look()
            with kernels.sdpa_kernel([kernels.SDPBackend.FLASH_ATTENTION], set_priority=True):
                look()
            look()
        look()
        with pytest.raises(AssertionError) as caught, kernels.sdpa_kernel(3):
            pass
        names = {name: int(kind) for name, kind in kernels.SDPBackend.__members__.items()}
        return states, str(caught.value), names

    assert read(gt) == read(torch)


def test_gradients_of_gradients_are_refused_as_by_pytorch():
    def read(t):
        query, key, value = leaves(t, *[LARGE] * 3)
        out = t.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

        def twice():
            (first,) = t.autograd.grad(out.square().sum(), [query], create_graph=True)
            return t.autograd.grad(first.square().sum(), [key])[0].numpy()

        with pytest.raises(RuntimeError) as caught:
            twice()
        return str(caught.value)

    words = "derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is not"
    assert read(torch).startswith(words)
    assert words in read(gt)


def test_which_kernel_runs(monkeypatch):
    def own(queries, keys, **options):
        query, key = (torch.ones(1, 1, n, 4, **options) for n in (queries, keys))
        made = own_kernels.run("attention", query, key, key, None, None, False, 0.0, 1.0)
        return made is not None

    few = [(8, 999), (8, 8), (7, 999), (7, 8), (1, 1), (8, 0)]
    for word, taken in (
        ("", [True, True] + [False] * 4),
        ("on", [True] * 6),
        ("off", [False] * 6),
    ):
        monkeypatch.setenv("GT_KERNELS", word)
        assert [own(*sizes) for sizes in few] == taken
        assert not own(8, 8, dtype=torch.float64)
        assert not own(8, 8, requires_grad=True)
    monkeypatch.setenv("GT_KERNELS", "fast")
    with pytest.raises(ValueError, match="GT_KERNELS=fast: expected one of auto, off, on"):
        own(8, 8)


Q, K = (2, 4, 5, 8), (2, 4, 6, 8)
MISTAKES = [
    ([Q, K, K], {"is_causal": True, "mask": (5, 6)}),
    ([Q, K, K], {"dropout_p": 1.5}),
    ([Q, (2, 3, 6, 8), (2, 3, 6, 8)], {"enable_gqa": True}),
    ([(2, 4, 5, 8), (2, 8, 6, 8), (2, 8, 6, 8)], {"enable_gqa": True}),
]


@pytest.mark.parametrize(("shapes", "options"), MISTAKES, ids=str)
def test_mistakes_have_pytorchs_words(shapes, options):
    def text(t):
        rest = dict(options)
        mask = t.zeros(rest.pop("mask")) if "mask" in rest else None
        with pytest.raises(RuntimeError) as caught:
            t.nn.functional.scaled_dot_product_attention(
                *(t.ones(shape) for shape in shapes), attn_mask=mask, **rest
            )
        return str(caught.value)

    assert text(gt).startswith(text(torch))
