"""Frameworks over PyTorch that look for a device by themselves, on the device `mux`.

    import gt.integrations
    gt.integrations.select_device()

Frameworks are not imported here: each is set up when the program imports it. `hugging_face` handles
Accelerate and the Trainer of transformers, `lightning` Lightning's Trainer and Fabric.
"""

from __future__ import annotations

import torch

import gt.torch
from gt.integrations import hugging_face, lightning
from gt.torch.elements import DEVICE_TYPE

__all__ = ["select_device"]


def select_device() -> torch.device:
    """Make Accelerate, transformers' `Trainer` and Lightning choose the device `mux`; returns it.

    Call it once, before the first `Accelerator`, `TrainingArguments`, `Trainer` or `Fabric` is
    made; the frameworks may be imported before or after. An explicit choice of the program
    (`use_cpu=True`, `accelerator="cpu"`) is kept.

    Raises:
        RuntimeError: Accelerate has chosen another device already, or a release of a framework
            chooses its device in an unknown way.
    """
    hugging_face.select()
    lightning.select()
    return torch.device(DEVICE_TYPE, 0)
