"""Recurrent layers over a whole sequence, in one direction.

`gates` is the input's part for all steps, [t, b, n * h]. If one of GT's kernels takes the layer
(csrc/table/recurrent.cpp), one call does all steps. Otherwise each step is a product with the state
and a handful of operators in place, and one more product for the gradient. The gradient of the
weights is one product for all steps together.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gt.worker.pytorch import own_kernels, products


def _order(count: int, *, reverse: bool) -> range:
    return range(count - 1, -1, -1) if reverse else range(count)


def _before(first: Tensor, later: Tensor, *, reverse: bool) -> Tensor:
    """The state before each step: [b, h] and [t, b, h] to [t, b, h]."""
    parts = [later[1:], first[None]] if reverse else [first[None], later[:-1]]
    return torch.cat(parts)


def _recorded(*values: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in values)


def _stacked(steps: Sequence[Tensor], *, reverse: bool) -> Tensor:
    return torch.stack(list(reversed(steps)) if reverse else list(steps))


def _weight_gradient(grads: Tensor, states: Tensor) -> Tensor:
    """The gradient of a weight: [t, b, n * h] and [t, b, h] to [n * h, h], in one product."""
    return products.matmul(grads.flatten(0, 1).t(), states.flatten(0, 1))


def _check_weight(weight: Tensor, count: int, hidden: Tensor) -> None:
    """Raises RuntimeError: PyTorch's product would resize its result, with only a warning."""
    width = (count * hidden.shape[-1], hidden.shape[-1])
    if weight.shape != width:
        raise RuntimeError(
            f"the weight of the state has shape {list(weight.shape)}, not {list(width)}"
        )


def lstm_layer(
    gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The long short-term memory; gates are input, forget, value and output, in PyTorch's order.

    Args:
        gates: [t, b, 4 * h]: W x and the biases.
        hidden: [b, h].
        cell: [b, h].
        weight: [4 * h, h], the weight of the state.
        reverse: True runs from the last step to the first.

    Returns:
        Hidden states [t, b, h], cells [t, b, h], and the gates' activations [t, b, 4 * h].
    """
    if _recorded(gates, hidden, cell, weight):
        return _lstm_recorded(gates, hidden, cell, weight, reverse)
    if results := own_kernels.run("lstm_layer", gates, hidden, cell, weight, reverse):
        return results[0], results[1], results[2]
    count, size = gates.shape[0], hidden.shape[-1]
    activations = gates.clone(memory_format=torch.contiguous_format)
    output = gates.new_empty((*gates.shape[:2], size))
    cells, transposed = torch.empty_like(output), weight.t()
    parts = activations.view(*gates.shape[:2], 4, size)
    enters, forgets, values, leaves = (part.unbind(0) for part in parts.unbind(2))
    both = activations[..., : 2 * size].unbind(0)
    steps = zip(activations.unbind(0), both, output.unbind(0), cells.unbind(0), strict=True)
    listed = list(steps)
    for t in _order(count, reverse=reverse):
        step, enter_forget, out, after = listed[t]
        step.addmm_(hidden, transposed)
        enter_forget.sigmoid_()
        leaves[t].sigmoid_()
        torch.mul(forgets[t], cell, out=after).addcmul_(enters[t], values[t].tanh_())
        torch.tanh(after, out=out).mul_(leaves[t])
        hidden, cell = out, after
    return output, cells, activations


def _lstm_recorded(
    gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    outputs, cells, activations = [], [], []
    for t in _order(gates.shape[0], reverse=reverse):
        step = gates[t] + hidden @ weight.t()
        enter, forget, value, leave = step.chunk(4, -1)
        enter, forget, value, leave = (
            enter.sigmoid(),
            forget.sigmoid(),
            value.tanh(),
            leave.sigmoid(),
        )
        cell = forget * cell + enter * value
        hidden = leave * cell.tanh()
        outputs.append(hidden)
        cells.append(cell)
        activations.append(torch.cat([enter, forget, value, leave], -1).detach())
    return (
        _stacked(outputs, reverse=reverse),
        _stacked(cells, reverse=reverse),
        _stacked(activations, reverse=reverse),
    )


def lstm_projected(
    gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, projection: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """lstm_layer with a hidden state [b, p] that is projected from the cell's output by [p, h].

    Its gradient runs it again under autograd.
    """
    outputs, cells = [], []
    rows, columns = weight.t(), projection.t()
    for t in _order(gates.shape[0], reverse=reverse):
        enter, forget, value, leave = torch.addmm(gates[t], hidden, rows).chunk(4, -1)
        cell = torch.addcmul(forget.sigmoid() * cell, enter.sigmoid(), value.tanh())
        hidden = (leave.sigmoid() * cell.tanh()) @ columns
        outputs.append(hidden)
        cells.append(cell)
    return _stacked(outputs, reverse=reverse), _stacked(cells, reverse=reverse)


def lstm_layer_backward(
    grad: Tensor,
    grad_cells: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    weight: Tensor,
    output: Tensor,
    cells: Tensor,
    activations: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of gates, hidden, cell and weight.

    The factors of a step's gradients are computed for all steps at once, so that a step is six
    operators.
    """
    saved = (weight, output, cells, activations)
    if results := own_kernels.run(
        "lstm_layer_backward", grad, grad_cells, hidden, cell, *saved, reverse
    ):
        return results[0], results[1], results[2], results[3]
    _check_weight(weight, 4, hidden)
    count, size = grad.shape[0], hidden.shape[-1]
    enter, forget, value, leave = activations.chunk(4, -1)
    past = _before(cell, cells, reverse=reverse)
    bent = cells.tanh()
    by_hidden = leave * (1 - bent * bent)  # d cell / d hidden
    grads = torch.empty_like(activations)
    factors = grads.view(*grad.shape[:2], 4, size)
    factors[:, :, 0] = value * (enter * (1 - enter))
    factors[:, :, 1] = past * (forget * (1 - forget))
    factors[:, :, 2] = enter * (1 - value * value)
    factors[:, :, 3] = bent * (leave * (1 - leave))
    of_cell, of_hidden = factors[:, :, :3].unbind(0), factors[:, :, 3].unbind(0)
    down, down_cell = torch.zeros_like(hidden), torch.zeros_like(cell)
    broadcast = down_cell.unsqueeze(1)
    each, keep, rates = grads.unbind(0), forget.unbind(0), by_hidden.unbind(0)
    step_grads = grad.unbind(0)
    given_cells = None if grad_cells is None else grad_cells.unbind(0)
    for t in reversed(_order(count, reverse=reverse)):
        down.add_(step_grads[t])
        down_cell.addcmul_(down, rates[t])
        if given_cells is not None:
            down_cell.add_(given_cells[t])
        of_cell[t].mul_(broadcast)
        of_hidden[t].mul_(down)
        down_cell.mul_(keep[t])
        torch.mm(each[t], weight, out=down)
    states = _before(hidden, output, reverse=reverse)
    return grads, down, down_cell, _weight_gradient(grads, states)


def gru_layer(
    gates: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The gated recurrent unit; the reset gate acts on U h + bias, as in PyTorch.

    Args:
        gates: [t, b, 3 * h]: W x and its bias, for reset, update and new.
        hidden: [b, h].
        weight: [3 * h, h], the weight of the state.
        bias: [3 * h], the bias of the state.
        reverse: True runs from the last step to the first.

    Returns:
        Hidden states [t, b, h]; and reset, update, new, and new's part of the state before the
        reset gate, [t, b, 4 * h].
    """
    if _recorded(gates, hidden, weight, bias):
        return _gru_recorded(gates, hidden, weight, bias, reverse)
    if results := own_kernels.run("gru_layer", gates, hidden, weight, bias, reverse):
        return results[0], results[1]
    count, size = gates.shape[0], hidden.shape[-1]
    activations = gates.new_empty((*gates.shape[:2], 4 * size))
    output = gates.new_empty((*gates.shape[:2], size))
    transposed = weight.t()
    doors = activations[..., : 2 * size].unbind(0)
    parts = activations.view(*gates.shape[:2], 4, size).unbind(2)
    resets, updates, news, states = (part.unbind(0) for part in parts)
    inputs, given_new = gates[..., : 2 * size].unbind(0), gates[..., 2 * size :].unbind(0)
    outputs = output.unbind(0)
    for t in _order(count, reverse=reverse):
        product = hidden @ transposed if bias is None else torch.addmm(bias, hidden, transposed)
        torch.add(inputs[t], product[:, : 2 * size], out=doors[t]).sigmoid_()
        states[t].copy_(product[:, 2 * size :])
        torch.addcmul(given_new[t], resets[t], states[t], out=news[t]).tanh_()
        torch.lerp(news[t], hidden, updates[t], out=outputs[t])
        hidden = outputs[t]
    return output, activations


def _gru_recorded(
    gates: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    outputs, activations = [], []
    for t in _order(gates.shape[0], reverse=reverse):
        reset_x, update_x, new_x = gates[t].chunk(3, -1)
        reset_h, update_h, new_h = torch.nn.functional.linear(hidden, weight, bias).chunk(3, -1)
        reset, update = (reset_x + reset_h).sigmoid(), (update_x + update_h).sigmoid()
        new = (new_x + reset * new_h).tanh()
        hidden = (hidden - new) * update + new
        outputs.append(hidden)
        activations.append(torch.cat([reset, update, new, new_h], -1).detach())
    return _stacked(outputs, reverse=reverse), _stacked(activations, reverse=reverse)


def gru_layer_backward(
    grad: Tensor,
    hidden: Tensor,
    weight: Tensor,
    output: Tensor,
    activations: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of gates, hidden, weight and bias."""
    if results := own_kernels.run(
        "gru_layer_backward", grad, hidden, weight, output, activations, reverse
    ):
        return results[0], results[1], results[2], results[3]
    _check_weight(weight, 3, hidden)
    past = _before(hidden, output, reverse=reverse)
    count, size = grad.shape[0], hidden.shape[-1]
    reset, update, new, state = activations.chunk(4, -1)
    # Factors of the hidden state's gradient, for the gates' arguments and for the state's product.
    to_new = (1 - update) * (1 - new * new)
    to_reset = to_new * state * (reset * (1 - reset))
    to_update = (past - new) * (update * (1 - update))
    factors = torch.stack([to_reset, to_update, to_new * reset], 2)  # [t, b, 3, h]
    grads_state, each = factors.flatten(2), factors.unbind(0)
    news, keep, step_grads = to_new.unbind(0), update.unbind(0), grad.unbind(0)
    flat = grads_state.unbind(0)
    down = torch.zeros_like(hidden)
    for t in reversed(_order(count, reverse=reverse)):
        down.add_(step_grads[t])
        each[t].mul_(down.unsqueeze(1))
        news[t].mul_(down)
        down = torch.addmm(down.mul_(keep[t]), flat[t], weight)
    grads = torch.cat([grads_state[..., : 2 * size], to_new], -1)
    return grads, down, _weight_gradient(grads_state, past), grads_state.sum((0, 1))


def rnn_layer(gates: Tensor, hidden: Tensor, weight: Tensor, relu: bool, reverse: bool) -> Tensor:
    """The Elman network: h = tanh(gates + U h), or relu.

    Args:
        gates: [t, b, h]: W x and the biases.
        hidden: [b, h].
        weight: [h, h], the weight of the state.
        relu: True for relu in place of tanh.
        reverse: True runs from the last step to the first.
    """
    if _recorded(gates, hidden, weight):
        outputs = []
        for t in _order(gates.shape[0], reverse=reverse):
            value = gates[t] + hidden @ weight.t()
            hidden = value.relu() if relu else value.tanh()
            outputs.append(hidden)
        return _stacked(outputs, reverse=reverse)
    if results := own_kernels.run("rnn_layer", gates, hidden, weight, relu, reverse):
        return results[0]
    output, transposed = gates.clone(memory_format=torch.contiguous_format), weight.t()
    steps = output.unbind(0)
    for t in _order(gates.shape[0], reverse=reverse):
        value = steps[t].addmm_(hidden, transposed)
        hidden = value.relu_() if relu else value.tanh_()
    return output


def rnn_layer_backward(
    grad: Tensor, hidden: Tensor, weight: Tensor, output: Tensor, relu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of gates, hidden and weight."""
    if results := own_kernels.run(
        "rnn_layer_backward", grad, hidden, weight, output, relu, reverse
    ):
        return results[0], results[1], results[2]
    _check_weight(weight, 1, hidden)
    states = _before(hidden, output, reverse=reverse)
    grads = (output > 0).to(output.dtype) if relu else 1 - output * output
    each, step_grads, down = grads.unbind(0), grad.unbind(0), torch.zeros_like(hidden)
    for t in reversed(_order(grad.shape[0], reverse=reverse)):
        each[t].mul_(down.add_(step_grads[t]))
        torch.mm(each[t], weight, out=down)
    return grads, down, _weight_gradient(grads, states)
