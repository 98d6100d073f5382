"""Gradients by PyTorch's own backward operators (gt/tensors/aten/backward.txt): those of
torch's autograd, without another run of the operator.
"""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gt
from gt.aten.backward import lines, saved_results
from gt.worker.pytorch import backward as torch_backward
from gt.worker.pytorch import generic as torch_aten

IMAGE, COLUMNS = (2, 4, 6, 6), (2, 4, 6)
VOLUME = (2, 4, 5, 6, 5)
# Overload -> texts of arguments and shapes of operands: two samples where defaults matter.
SAMPLES = {
    "conv1d": [("_0, _1, _2, [2], [1]", COLUMNS, (6, 4, 3), (6,))],
    "conv2d": [
        ("_0, _1", IMAGE, (6, 4, 3, 3)),
        ("_0, _1, _2, [2, 1], [1, 2], [1, 2], 2", IMAGE, (6, 2, 3, 3), (6,)),
        ("_0, _1, _2", IMAGE[1:], (6, 4, 3, 3), (6,)),
    ],
    "conv3d": [("_0, _1, _2", VOLUME, (2, 4, 3, 3, 3), (2,))],
    "conv_transpose1d": [("_0, _1, _2, [2], [1], [1]", COLUMNS, (4, 3, 3), (3,))],
    "conv_transpose2d.input": [
        ("_0, _1, None, [2, 2], [1, 1], [1, 0], 2", IMAGE, (4, 3, 3, 3)),
    ],
    "conv_transpose3d.input": [("_0, _1, _2", VOLUME, (4, 2, 2, 2, 2), (2,))],
    "convolution": [
        ("_0, _1, _2, [1, 1], [0, 0], [1, 1], False, [0, 0], 1", IMAGE, (3, 4, 2, 2), (3,)),
    ],
    "avg_pool1d": [("_0, [2]", COLUMNS), ("_0, [3], [2], [1], True, False", COLUMNS[1:])],
    "avg_pool2d": [("_0, [2, 2]", IMAGE), ("_0, [3, 2], [2, 1], [1, 1], True, False", IMAGE)],
    "avg_pool3d": [("_0, [2, 2, 2]", VOLUME)],
    "adaptive_avg_pool2d": [("_0, [3, 2]", IMAGE), ("_0, [1, 1]", IMAGE)],
    "adaptive_avg_pool3d": [("_0, [3, 2, 2]", VOLUME)],
    "reflection_pad1d": [("_0, [1, 2]", COLUMNS)],
    "reflection_pad2d": [("_0, [1, 2, 3, 1]", IMAGE)],
    "reflection_pad3d": [("_0, [1, 2, 1, 1, 0, 2]", VOLUME)],
    "replication_pad1d": [("_0, [1, 2]", COLUMNS)],
    "replication_pad2d": [("_0, [1, 2, 3, 1]", IMAGE)],
    "replication_pad3d": [("_0, [1, 2, 1, 1, 0, 2]", VOLUME)],
    "grid_sampler": [
        ("_0, _1, 0, 1, False", IMAGE, (2, 3, 3, 2)),
        ("_0, _1, 0, 0, True", VOLUME, (2, 3, 3, 2, 3)),
    ],
    "grid_sampler_2d": [("_0, _1, 2, 0, False", IMAGE, (2, 3, 3, 2))],
    "grid_sampler_3d": [("_0, _1, 0, 0, True", VOLUME, (2, 3, 3, 2, 3))],
    "im2col": [("_0, [2, 3], [1, 1], [1, 0], [2, 1]", IMAGE)],
    "col2im": [("_0, [6, 6], [2, 2], [1, 1], [0, 0], [2, 2]", (2, 16, 9))],
    "pixel_shuffle": [("_0, 2", IMAGE)],
    "pixel_unshuffle": [("_0, 3", IMAGE)],
    "max_pool2d_with_indices": [
        ("_0, [2, 2]", IMAGE),
        ("_0, [3, 2], [2, 1], [1, 1], [1, 2], True", IMAGE),
    ],
    "max_pool3d_with_indices": [("_0, [2, 2, 2]", VOLUME)],
    "adaptive_max_pool2d": [("_0, [3, 2]", IMAGE)],
    "adaptive_max_pool3d": [("_0, [3, 2, 2]", VOLUME)],
    "fractional_max_pool2d": [("_0, [2, 2], [3, 3], _1", IMAGE, (2, 4, 2))],
    "fractional_max_pool3d": [("_0, [2, 2, 2], [2, 3, 2], _1", VOLUME, (2, 4, 3))],
    "glu": [("_0, 1", IMAGE), ("_0", IMAGE)],
    "hardtanh": [("_0, -0.5, 0.5", IMAGE), ("_0", IMAGE)],
    "hardshrink": [("_0", IMAGE)],
    "softshrink": [("_0, 0.25", IMAGE)],
    "threshold": [("_0, 0.25, 2", IMAGE)],
    "logit": [("_0, 0.1", IMAGE)],
    **{name: [("_0", IMAGE)] for name in ("hardswish", "hardsigmoid", "mish")},
    "matmul": [
        ("_0, _1", (2, 3, 4), (2, 4, 5)),
        ("_0, _1", (3, 4), (4, 5)),
        ("_0, _1", (2, 3, 4), (1, 4, 5)),
        ("_0, _1", (4,), (4,)),
        ("_0, _1", (2, 2, 3, 1), (2, 2, 1, 5)),
    ],
    **{
        name: [
            (f"_0, {n}, {dim}, {norm}", (3, 8, 7))
            for n, dim in lengths
            for norm in ("None", "'backward'", "'ortho'", "'forward'")
        ]
        for name, lengths in (
            ("fft_rfft", (("None", -1), ("None", 1), (7, 2), (5, -1), (9, -1))),
            ("fft_irfft", (("None", -1), ("None", 1), (13, -1), (12, 2), (5, -1), (15, 1))),
        )
    },
    "attention": [
        ("_0, _1, _2, None, None, True, 0.0, 0.5", *[(2, 3, 5, 4)] * 3),
        ("_0, _1, _2, None, None, False, 0.0, 0.25", (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)),
    ],
    "lstm_layer": [
        (f"_0, _1, _2, _3, {r}", (5, 3, 8), (3, 2), (3, 2), (8, 2)) for r in (False, True)
    ],
    "gru_layer": [(f"_0, _1, _2, _3, {r}", (5, 3, 6), (3, 2), (6, 2), (6,)) for r in (False, True)]
    + [("_0, _1, _2, None, False", (5, 3, 6), (3, 2), (6, 2))],
    "rnn_layer": [
        (f"_0, _1, _2, {relu}, {r}", (5, 3, 2), (3, 2), (2, 2))
        for relu, r in itertools.product((False, True), repeat=2)
    ],
    **{
        f"{name}.vec": [
            (f"_0, None, {corners}[{', '.join(['1.5'] * dims)}]", (2, 4, 5, 6, 5)[: dims + 2]),
            (f"_0, [{', '.join('795'[:dims])}], {corners}None", (2, 4, 5, 6, 5)[: dims + 2]),
        ]
        for name, dims, corners in (
            *((f"upsample_nearest{n}d", n, "") for n in (1, 2, 3)),
            *((f"_upsample_nearest_exact{n}d", n, "") for n in (1, 2, 3)),
            ("upsample_linear1d", 1, "False, "),
            ("upsample_bilinear2d", 2, "True, "),
            ("upsample_bicubic2d", 2, "False, "),
            ("upsample_trilinear3d", 3, "False, "),
            ("_upsample_bilinear2d_aa", 2, "False, "),
            ("_upsample_bicubic2d_aa", 2, "False, "),
        )
    },
}


class Calls(TorchDispatchMode):
    """Names of what ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_each_line_has_samples() -> None:
    assert set(SAMPLES) == set(lines())


@pytest.mark.parametrize("overload", SAMPLES)
def test_gradients_are_those_of_autograd(overload: str) -> None:
    generator = torch.Generator().manual_seed(3)
    ran = 0
    for text, *shapes in SAMPLES[overload]:
        dtype = torch.complex128 if overload in {"matmul", "fft_irfft"} else torch.float64
        operands = [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]
        run = torch_aten.operator(overload, text)
        results, count = run(operands)
        assert count == len(operands)
        grads = [
            torch.rand(x.shape, generator=generator, dtype=x.dtype)
            if x.is_floating_point() or x.is_complex()
            else None
            for x in results
        ]
        places = [k for k in range(count) if k == 0 or "max_pool" not in overload]
        chosen = (itertools.combinations(places, size) for size in range(1, len(places) + 1))
        for wanted in itertools.chain.from_iterable(chosen):
            expected, _ = torch_aten._product(run, (*wanted, -1))([*operands, *grads])
            backward = torch_backward.backward(overload, text, wanted, torch_aten.dtype_named)
            assert backward is not None
            saved = [results[place] for place in saved_results(overload)]
            with torch.inference_mode(), Calls() as calls:
                found = backward([*operands, *grads, *saved])
            if found is None:
                continue
            ran += 1
            assert f"aten.{overload}" not in calls.names
            assert not {"aten.convolution.default"} & set(calls.names)
            assert len(found) == len(wanted)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    assert ran, "some sample meets the condition"


def test_what_no_line_says_runs_again() -> None:
    assert torch_backward.backward("erfinv", "_0", [0], torch_aten.dtype_named) is None
    # One operand as two arguments, and one that is no argument.
    for text in ("_0, _0", "_0, _2"):
        assert torch_backward.backward("conv2d", text, [0], torch_aten.dtype_named) is None


def test_what_is_saved_travels_to_every_derivative() -> None:
    numbers = torch.rand(2, 3, 6, 6, dtype=torch.float64)
    found = []
    for lib in (gt, torch):
        x = lib.tensor(numbers.tolist(), dtype=lib.float64, requires_grad=True)
        y = lib.nn.functional.max_pool2d(x * x, 2)
        (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad((first * first).sum(), x, create_graph=True)
        second.sum().backward()
        found.append([y.tolist(), first.tolist(), second.tolist(), x.grad.tolist()])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))


def test_a_result_that_is_saved_and_written_is_found() -> None:
    x = gt.ones(1, 1, 4, 4, requires_grad=True)
    values, places = gt.nn.functional.max_pool2d(x * 1, 2, return_indices=True)
    places.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


def test_attention_reads_operands_however_they_lie() -> None:
    """The kernel takes for granted that the last dimension is dense, and says nothing."""
    generator = torch.Generator().manual_seed(4)
    whole = torch.rand((2, 3, 6, 5), generator=generator, dtype=torch.float64)
    views = [whole.mT, whole.mT * 2, (whole * 3).transpose(2, 3)]
    grad = torch.ones((), dtype=torch.float64).expand(2, 3, 5, 6)
    mask = torch.rand((1, 1, 1, 5), generator=generator, dtype=torch.float64)
    run = torch_aten.operator("attention", "_0, _1, _2, _3, None, False, 0.0, 0.5")
    backward = torch_backward.backward(
        "attention", "_0, _1, _2, _3, None, False, 0.0, 0.5", [0, 1, 2], torch_aten.dtype_named
    )
    assert backward is not None
    found = []
    for operands in (views, [x.contiguous() for x in views]):
        results, _ = run([*operands, mask])
        grads = backward([*operands, mask, grad, None, *results])
        assert grads is not None
        found.append([*results, *grads])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    leaves = [x.clone().requires_grad_() for x in views]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, mask, scale=0.5)
    torch.testing.assert_close(found[0][0], expected.detach())
    for one, other in zip(found[0][2:], torch.autograd.grad(expected.sum(), leaves), strict=True):
        torch.testing.assert_close(one, other)
