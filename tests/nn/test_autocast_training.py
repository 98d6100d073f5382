"""The GPT of examples/zoo under autocast: the losses of PyTorch's own autocast, step by step."""

import sys

import numpy as np
import pytest
import torch
from test_zoo import ZOO, program, text, with_gt

import gt

STEPS = 12
# A rounding of the lower dtype: values of products differ by the order in which terms are added.
TOLERANCE = {"bfloat16": 1e-3, "float16": 5e-4}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.syspath_prepend(ZOO)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def losses(t, dtype: str) -> tuple[list[float], list[float], dict[str, str]]:
    """Losses, scales, and the dtype of what each layer gives in the first step."""
    source = text("nanogpt")
    name = f"{t.__name__}_nanogpt"
    module = program(name, with_gt(source) if t is gt else source)
    model = module.GPT(module.GPTConfig())
    sys.modules["weights"].fill(model, 1)
    dtypes: dict[str, str] = {}

    def note(title: str):
        def hook(layer, given, made):
            dtypes.setdefault(title, str(made.dtype).rpartition(".")[2])

        return hook

    for title, layer in model.named_modules():
        layer.register_forward_hook(note(title))
    optimizer = model.configure_optimizers()
    scaler = t.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=2)
    rng = np.random.default_rng(0)
    found, scales = [], []
    for _ in range(STEPS):
        tokens = rng.integers(0, 27, (4, 17))
        x, y = t.tensor(tokens[:, :-1].copy()), t.tensor(tokens[:, 1:].copy())
        with t.autocast("cpu", dtype=getattr(t, dtype)):
            loss = model(x, y)
        if dtype == "float16":
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found.append(loss.item())
        scales.append(scaler.get_scale())
    return found, scales, dtypes


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_losses_dtypes_and_scales_are_pytorchs(dtype):
    expected, expected_scales, expected_dtypes = losses(torch, dtype)
    got, scales, dtypes = losses(gt, dtype)
    assert dtypes == expected_dtypes
    assert dtypes["lm_head"] == dtype
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype])
    assert scales == expected_scales
    # It began so large that steps were skipped, and grew again.
    assert dtype == "bfloat16" or min(scales) < scales[-1] < 2.0**24
