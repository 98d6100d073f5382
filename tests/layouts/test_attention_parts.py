"""The gradient of attention from strided parts: a worker has a part of what others have whole."""

import numpy as np
import pytest
import torch

from gt.worker.native import attention as native_attention
from gt.worker.pytorch import attention as torch_attention

SHAPE = (2, 3, 8, 8)  # [b, h, t, k]
SCALE = 8**-0.5


def strided(x: torch.Tensor) -> torch.Tensor:
    """A copy of `x` as a slice of a tensor with twice the heads."""
    return torch.cat([x, x + 1], 1)[:, : x.shape[1]]


@pytest.mark.parametrize("is_causal", [False, True])
def test_what_the_forward_pass_kept_may_be_strided(is_causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value, grad = (torch.randn(SHAPE) for _ in range(4))
    options = (None, None, is_causal, 0.0, SCALE)
    saved = torch_attention.attention(query, key, value, *options)
    expected = torch_attention.attention_backward(grad, query, key, value, *saved, *options)
    parts = [strided(x) for x in saved]
    assert not parts[0].is_contiguous()
    found = torch_attention.attention_backward(grad, query, key, value, *parts, *options)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    named = {
        "query": query.numpy(), "key": key.numpy(), "value": value.numpy(),
        "attn_mask": None, "is_causal": is_causal, "scale": SCALE,
    }  # fmt: skip
    given = [x.numpy() for x in parts]
    made = native_attention.gradients(named, grad.numpy(), given, native_attention.TENSORS)
    for word, theirs in zip(native_attention.TENSORS, expected, strict=True):
        np.testing.assert_allclose(made[word], theirs.numpy(), rtol=1e-4, atol=1e-5)
