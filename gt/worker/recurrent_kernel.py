"""GT's own kernels for recurrent layers (csrc/cpu/recurrent): what they take, and how.

One call does all steps, where operators of torch cost more than their arithmetic. For what is not
taken the functions here give None, and torch_recurrent.py goes step by step with torch: another
dtype than float32, another device than the CPU, and no rows or units. A layer's values do not
depend on the batch it is in, nor on the number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker import own_kernels

_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def takes(*values: Tensor | None) -> bool:
    """Whether the kernels take these, of which none records a gradient."""
    return own_kernels.module() is not None and all(
        x is None or (x.dtype is torch.float32 and x.is_cpu and x.numel() > 0) for x in values
    )


def forward(
    kind: str,
    gates: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """Output [t, b, h]; cells [t, b, h] of an LSTM; activations [t, b, 4 * h] of an LSTM or GRU.

    Args:
        kind: lstm, gru, tanh or relu.
        gates: [t, b, gates * h], and the others as in torch_recurrent.py, all taken.
    """
    kernels = own_kernels.module()
    assert kernels is not None
    count, batch, size = *gates.shape[:2], hidden.shape[-1]
    width = _GATES[kind] * size
    _check(
        kind,
        (gates, (count, batch, width)),
        (hidden, (batch, size)),
        (cell, (batch, size)),
        (weight, (width, size)),
        (bias, (width,)),
    )
    output = gates.new_empty((count, batch, size))
    cells = None if cell is None else torch.empty_like(output)
    has_gates = kind in {"lstm", "gru"}
    activations = gates.new_empty((count, batch, 4 * size)) if has_gates else None
    given = [_whole(x) for x in (gates, hidden, cell, weight, bias)]
    arrays = [_address(x) for x in (*given, output, cells, activations)]
    kernels.recurrent_forward(kind, count, batch, size, reverse, own_kernels.threads(), *arrays)
    return tuple(x for x in (output, cells, activations) if x is not None)


def backward(
    kind: str,
    grad: Tensor,
    grad_cells: Tensor | None,
    hidden: Tensor,
    cell: Tensor | None,
    weight: Tensor,
    output: Tensor,
    cells: Tensor | None,
    activations: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """Gradients of the gates, of W h + bias (other ones for GRU), hidden, and cell for LSTM."""
    kernels = own_kernels.module()
    assert kernels is not None
    count, batch, size = grad.shape
    width = _GATES[kind] * size
    _check(
        kind,
        *((x, (count, batch, size)) for x in (grad_cells, output, cells)),
        *((x, (batch, size)) for x in (hidden, cell)),
        (weight, (width, size)),
        (activations, (count, batch, 4 * size)),
    )
    grads = grad.new_empty((count, batch, width))
    grads_state = torch.empty_like(grads) if kind == "gru" else grads
    grad_hidden = grad.new_empty((batch, size))
    grad_cell = None if cell is None else torch.empty_like(grad_hidden)
    read = (grad, grad_cells, hidden, cell, weight, output, cells, activations)
    given = [_whole(x) for x in read]
    written = (grads, grads_state, grad_hidden, grad_cell)
    arrays = [_address(x) for x in (*given, *written)]
    kernels.recurrent_backward(kind, count, batch, size, reverse, own_kernels.threads(), *arrays)
    return tuple(x for x in written if x is not None)


def _check(kind: str, *pairs: tuple[Tensor | None, tuple[int, ...]]) -> None:
    """The kernels get addresses alone: what does not fit would be read beyond its end."""
    for value, shape in pairs:
        if value is not None and value.shape != shape:
            raise RuntimeError(
                f"{kind}: an operand is {list(value.shape)}, and {list(shape)} fits the others"
            )


def _whole(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.contiguous()


def _address(value: Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()
