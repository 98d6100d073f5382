"""Attention as users call it: never all scores in memory, any form's values, PyTorch's words."""

import os
import subprocess
import sys

import pytest
import torch
from same_program import check

import gt

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


def test_which_kernel_runs():
    code = (
        "import torch\n"
        "from gt.worker import own_kernels\n"
        "def own(rows, **options):\n"
        "    x = torch.ones(1, 1, rows, 4, **options)\n"
        "    return own_kernels.chosen('attention', x, x, x) is not None\n"
        "print([own(64), own(8), own(64, dtype=torch.float64), own(64, requires_grad=True)])\n"
    )

    def answer(word):
        environment = os.environ | {"GT_KERNELS": word}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert answer("").stdout == "[True, False, False, False]\n"
    assert answer("on").stdout == "[True, True, False, False]\n"
    assert answer("off").stdout == "[False, False, False, False]\n"
    assert "GT_KERNELS=fast: expected one of auto, off, on" in answer("fast").stderr


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
