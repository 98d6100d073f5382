"""One expression evaluated by GT and by PyTorch: equal values, dtypes, shapes and gradients."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from gt import _core, composite, creation
from gt import random as random_tensors

GT = {
    **composite.functions(),
    **{name: getattr(creation, name) for name in creation.__all__},
    **{name: getattr(random_tensors, name) for name in random_tensors.__all__},
}


class Namespace:
    """`m.cat` is GT's function for GT's tensors and PyTorch's for PyTorch's."""

    def __init__(self, torch_side: bool) -> None:
        self.torch_side = torch_side

    def __getattr__(self, name: str) -> object:
        if self.torch_side:
            value = getattr(torch, name, None)
            return getattr(torch.nn.functional, name) if value is None else value
        if name in GT:
            return GT[name]
        return getattr(_core, name, None) or getattr(_core.Tensor, name)


OURS, THEIRS = Namespace(False), Namespace(True)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def upload(x: torch.Tensor) -> _core.Tensor:
    dtype = getattr(_core, str(x.dtype).removeprefix("torch."))
    return _core.from_bytes(x.numpy().tobytes(), tuple(x.shape), dtype, x.is_floating_point())


def flat(result: object) -> list[object]:
    if isinstance(result, (tuple, list)) and not isinstance(result, (torch.Size,)):
        return [y for x in result for y in flat(x)]
    return [result]


def compare(ours: object, theirs: object) -> None:
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert repr(ours.dtype).removeprefix("gt.") == str(theirs.dtype).removeprefix("torch.")
    expected = theirs.detach().resolve_neg().numpy(force=True)
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-6, atol=1e-7)


def weighted(results: Sequence[object], weight: Callable[[object], object]) -> object:
    """A number whose gradient reaches all floating results."""
    terms = [(x * weight(x)).sum() for x in results]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def check(function: Callable[..., object], inputs: Sequence[torch.Tensor]) -> None:
    """Equal results; equal gradients of a weighted sum of the results."""
    mine = [upload(x) for x in inputs]
    other = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    ours, theirs = flat(function(OURS, *mine)), flat(function(THEIRS, *other))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        compare(a, b)
    live = [
        (a, b)
        for a, b in zip(ours, theirs, strict=True)
        if isinstance(b, torch.Tensor) and b.requires_grad and b.dtype == torch.float64
    ]
    assert all(a.requires_grad for a, _ in live)
    if not live:
        return
    weights = {tuple(b.shape): normal(*b.shape, seed=9) for _, b in live}
    weighted([b for _, b in live], lambda x: weights[tuple(x.shape)]).backward()
    weighted([a for a, _ in live], lambda x: upload(weights[tuple(x.shape)]).detach()).backward()
    for a, b in zip(mine, other, strict=True):
        if b.grad is None:
            assert a.grad is None or not a.grad.numpy().any()
        elif a.grad is None:
            assert not b.grad.any()
        else:
            compare(a.grad, b.grad)
