"""MultiheadAttention where a query sees no key, and losses of bool targets, beside PyTorch."""

import pytest
import torch

import gt

PADDING = [[False, True, True], [True, True, True]]
HIDDEN = [[True, True, True], [False, False, True], [False, True, False]]


def attended(m, masks, need_weights, dtype):
    layer = m.nn.MultiheadAttention(4, 2, batch_first=True, dtype=getattr(m, dtype))
    with m.no_grad():
        for parameter in layer.parameters():
            count = parameter.numel()
            numbers = m.arange(count).reshape(parameter.shape).to(parameter.dtype)
            parameter.copy_(numbers / count - 0.3)
    x = (m.arange(24.0).reshape(2, 3, 4) / 10).to(getattr(m, dtype)).requires_grad_()
    named = {name: m.tensor(mask) for name, mask in masks.items()}
    output, weights = layer(x, x, x, need_weights=need_weights, **named)
    (gradient,) = m.autograd.grad(output.sum(), [x])
    made = (output.detach(), gradient, *([] if weights is None else [weights.detach()]))
    return [torch.tensor(one.double().tolist()) for one in made]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "masks",
    [{"key_padding_mask": PADDING}, {"attn_mask": HIDDEN}, {"attn_mask": HIDDEN[1:] + HIDDEN[1:2]}],
    ids=["padding", "hidden", "seen"],
)
def test_a_query_that_sees_no_key(masks, need_weights, dtype):
    ours, theirs = (attended(m, masks, need_weights, dtype) for m in (gt, torch))
    assert len(ours) == len(theirs)
    assert theirs[0].isnan().any() == (need_weights and HIDDEN[0] in (*masks.values(),)[0])
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss", "mse_loss"])
def test_a_bool_target_counts_as_numbers(name, reduction):
    def lost(m, dtype):
        x = m.tensor([0.5, -2.0, 1.0], requires_grad=True)
        target = m.tensor([True, False, True]).to(dtype)
        return x, getattr(m.nn.functional, name)(x, target, reduction=reduction)

    x, loss = lost(gt, gt.bool)
    assert loss.tolist() == lost(torch, torch.bool)[1].tolist()
    other, expected = lost(torch, torch.float32)  # the gradient of huber_loss refuses bools there
    expected.sum().backward()
    assert gt.autograd.grad(loss.sum(), [x])[0].tolist() == other.grad.tolist()
