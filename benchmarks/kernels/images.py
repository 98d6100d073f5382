"""Pools and convolutions of gt._kernels beside PyTorch's: time, GB/s or GFLOP/s, and the ratio.

    taskset -c 0,1 python benchmarks/kernels/images.py [--cpu-time]

Both sides write into existing memory, except PyTorch's gradients of a convolution, which allocate
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import beside_torch
import torch
from beside_torch import Case
from torch import Tensor

from gt import _kernels

_POOLED = ((64, 16, 28, 28), (64, 32, 14, 14))  # images, channels, rows, columns
_FILTERED = (  # images, channels, rows, columns; filters
    ((64, 1, 28, 28), 16),
    ((64, 16, 14, 14), 32),
    ((8, 64, 56, 56), 64),
)
_PAIR = [2, 2]  # windows of the pools, which do not overlap
_POOL_WINDOW = [2, 2, 2, 2, 0, 0, 1, 1]
_CONVOLUTION_WINDOW = [3, 3, 1, 1, 1, 1, 1, 1]


def _bytes(*tensors: Tensor) -> int:
    return sum(one.nbytes for one in tensors)


def _max_pools(size: tuple[int, ...], name: str) -> Iterator[Case]:
    """Forward and backward."""
    aten = torch.ops.aten
    image, image_grad = torch.randn(size), torch.empty(size)
    out, places = aten.max_pool2d_with_indices(image, _PAIR)
    grad = torch.randn(out.shape)
    pictures, own_grad, own_places = (x.flatten(0, 1).numpy() for x in (image_grad, grad, places))
    window = (_PAIR, _PAIR, [0, 0], [1, 1])
    yield Case(
        f"max pool {name}",
        _bytes(image, out, places),
        lambda: aten.max_pool2d_with_indices.out(image, *window, out=out, indices=places),
        lambda threads: _kernels.max_pool(out, places, image, *window, threads),
        "B",
    )
    yield Case(
        f"  its gradient {name}",
        _bytes(grad, places, image_grad),
        lambda: aten.max_pool2d_with_indices_backward.grad_input(
            grad, image, *window, False, places, grad_input=image_grad
        ),
        lambda threads: _kernels.max_pool_backward(pictures, own_grad, own_places, threads),
        "B",
    )


def _average_pools(size: tuple[int, ...], name: str) -> Iterator[Case]:
    """Forward and backward."""
    aten = torch.ops.aten
    image, image_grad = torch.randn(size), torch.empty(size)
    out = aten.avg_pool2d(image, _PAIR)
    grad = torch.randn(out.shape)
    own_out, own_image, own_image_grad, own_grad = (
        x.flatten(0, 1).numpy() for x in (out, image, image_grad, grad)
    )
    window = _POOL_WINDOW
    options = (_PAIR, _PAIR, [0, 0], False, True, None)
    yield Case(
        f"average pool {name}",
        _bytes(image, out),
        lambda: aten.avg_pool2d.out(image, *options, out=out),
        lambda threads: _kernels.avg_pool(own_out, own_image, window, True, 0, threads),
        "B",
    )
    yield Case(
        f"  its gradient {name}",
        _bytes(grad, image_grad),
        lambda: aten.avg_pool2d_backward.grad_input(grad, image, *options, grad_input=image_grad),
        lambda threads: _kernels.avg_pool_backward(
            own_image_grad, own_grad, window, True, 0, threads
        ),
        "B",
    )


def _convolutions(size: tuple[int, ...], filters: int) -> Iterator[Case]:
    """Forward, and the gradients of the image and of the weight."""
    image, weight = torch.randn(size), torch.randn(filters, size[1], 3, 3)
    bias, out = torch.randn(filters), torch.empty(size[0], filters, *size[2:])
    grad = torch.randn(out.shape)
    own_out, own_image, own_weight, own_bias, own_grad, image_grad, weight_grad = (
        x.numpy()
        for x in (out, image, weight, bias, grad, torch.empty_like(image), torch.empty_like(weight))
    )
    window = _CONVOLUTION_WINDOW

    def torch_gradient(mask: list[bool]) -> object:
        ones, zeros = [1, 1], [0, 0]
        return torch.ops.aten.convolution_backward(
            grad, image, weight, None, ones, ones, ones, False, zeros, 1, mask
        )

    name = f"{' x '.join(map(str, size))} to {filters}"
    work = 2 * out.numel() * weight[0].numel()
    yield Case(
        f"convolution {name}",
        work,
        lambda: torch.ops.aten.convolution.out(
            image, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, out=out
        ),
        lambda threads: _kernels.conv2d(
            own_out, own_image, own_weight, own_bias, window, 1, threads
        ),
    )
    yield Case(
        f"  gradient of its input {name}",
        work,
        lambda: torch_gradient([True, False, False]),
        lambda threads: _kernels.conv2d_input_grad(
            image_grad, own_grad, own_weight, window, 1, threads
        ),
    )
    yield Case(
        f"  gradient of its weight {name}",
        work,
        lambda: torch_gradient([False, True, False]),
        lambda threads: _kernels.conv2d_weight_grad(
            weight_grad, own_grad, own_image, window, 1, threads
        ),
    )


def _cases() -> Iterator[Case]:
    for size in _POOLED:
        name = " x ".join(map(str, size))
        yield from _max_pools(size, name)
        yield from _average_pools(size, name)
    for size, filters in _FILTERED:
        yield from _convolutions(size, filters)


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases)
