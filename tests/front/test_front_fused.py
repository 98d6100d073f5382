"""Optimizers with `fused=True` on the device `mux`, with and without a GradScaler, beside local."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_session import torch_workers

import gt.torch  # noqa: F401 - the device

STEPS = 4
INFINITE = 2  # the step whose gradients a GradScaler refuses
BOTH = (False, True)
CASES: list[tuple[Any, dict[str, Any]]] = [
    *((torch.optim.AdamW, {"amsgrad": a, "maximize": m, "weight_decay": w})
      for a in BOTH for m in BOTH for w in (0.0, 0.1)),
    *((torch.optim.Adam, {"amsgrad": a, "weight_decay": w}) for a in BOTH for w in (0.0, 0.1)),
    *((torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": m}) for m in BOTH),
    *((torch.optim.SGD, {"momentum": b, "dampening": 0.1, "weight_decay": 0.1})
      for b in (0.0, 0.9)),
    *((torch.optim.Adagrad, {"lr_decay": d, "weight_decay": w}) for d in (0.0, 0.1)
      for w in (0.0, 0.1)),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def state_after(
    kind: Any, options: dict[str, Any], device: str, dtype: torch.dtype, is_scaled: bool
) -> list[torch.Tensor]:
    """Parameters, gradients and what the optimizer keeps of them."""
    draws = torch.Generator().manual_seed(1)
    parameters = [
        torch.randn(4, 3, dtype=dtype, generator=draws).to(device).requires_grad_()
        for _ in range(3)
    ]
    optimizer = kind(parameters, fused=True, **options)
    scaler = torch.amp.GradScaler(device, init_scale=8.0)
    for step in range(STEPS):
        for parameter in parameters:
            drawn = torch.randn(4, 3, dtype=dtype, generator=draws)
            drawn[0, 0] = float("inf") if is_scaled and step == INFINITE else drawn[0, 0]
            parameter.grad = drawn.to(device)
        if is_scaled:
            scaler.scale(torch.zeros((), device=device))
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    kept = [x for one in parameters for x in optimizer.state[one].values()]
    seen = [*parameters, *[x.grad for x in parameters], *kept]
    return [x.detach().cpu() for x in seen if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("is_scaled", BOTH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_a_fused_step_is_as_locally(
    kind: Any, options: dict[str, Any], dtype: torch.dtype, is_scaled: bool
) -> None:
    for rate in (1e-2, torch.tensor(1e-2)):
        if isinstance(rate, torch.Tensor) and kind is torch.optim.Adagrad:
            continue
        local, remote = (
            state_after(
                kind,
                {**options, "lr": rate.to(device) if isinstance(rate, torch.Tensor) else rate},
                device,
                dtype,
                is_scaled,
            )
            for device in ("cpu", "mux")
        )
        tolerance = 1e-6 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(remote, local, rtol=tolerance, atol=tolerance, equal_nan=True)
