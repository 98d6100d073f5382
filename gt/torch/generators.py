"""`torch.Generator(device="mux")`: PyTorch makes generators only for its own devices.

A generator of the device is one of the host under another name; a draw on the device takes one of
its numbers as the seed of GT's generator, so that draws depend on its state.
"""

from __future__ import annotations

from typing import Any

import torch

from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

_Generator: Any = torch.Generator


class _Kind(type(_Generator)):  # type: ignore[misc] # PyTorch's class is known when this runs
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)


class Generator(_Generator, metaclass=_Kind):  # type: ignore[misc]
    """PyTorch's generator, also for the device `mux`."""

    def __new__(cls, device: Any = "cpu") -> Any:  # noqa: ANN401 - another class for other devices
        """A generator of `device`."""
        if torch.device(device).type != DEVICE_TYPE:
            return _Generator(device)
        return super().__new__(cls, "cpu")

    @property
    def device(self) -> torch.device:
        """The device `mux`."""
        return MuxTensor.home


def install() -> None:
    """Replaces PyTorch's class."""
    torch.Generator = Generator  # type: ignore[misc]
