"""Frameworks over PyTorch that look for a device by themselves, on the device `mux`.

    import gt.integrations
    gt.integrations.select_device()

Frameworks are not imported here: each is told when the program imports it. `hugging_face` knows
Accelerate and the Trainer of transformers, `lightning` Lightning's Trainer and Fabric.
"""

from __future__ import annotations

import torch

import gt.torch
from gt.integrations import hugging_face, lightning
from gt.torch.elements import DEVICE_TYPE

__all__ = ["select_device"]


def select_device() -> torch.device:
    """Has Accelerate, transformers' `Trainer` and Lightning choose the device `mux`; returns it.

    A program calls it once, before it makes the first `Accelerator`, `TrainingArguments`, `Trainer`
    or `Fabric`; whether the frameworks are imported before or after makes no difference. A choice
    that the program writes out (`use_cpu=True`, `accelerator="cpu"`) stays.

    Raises:
        RuntimeError: Accelerate has chosen another device already, or a release of a framework
            chooses it in a way that is not known here.
    """
    hugging_face.select()
    lightning.select()
    return torch.device(DEVICE_TYPE, 0)
