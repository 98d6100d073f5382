"""Make Lightning's Trainer and Fabric choose the device `mux`: the accelerator of that name.

It is registered like Lightning's own. Lightning's rules for `auto` and for the single-device
strategy know only its own accelerators, so methods of the class with these rules are replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gt.compat import import_hooks
from gt.torch.elements import DEVICE_TYPE

# Modules that choose, under both names by which Lightning is installed.
_TRAINERS = (
    "lightning.pytorch.trainer.connectors.accelerator_connector",
    "pytorch_lightning.trainer.connectors.accelerator_connector",
)
_FABRICS = ("lightning.fabric.connector", "lightning_fabric.connector")
_MIXED = ("16-mixed", "bf16-mixed")


@functools.cache
def select() -> None:
    """Set up each part of Lightning when it is imported."""
    for name in _TRAINERS:
        chosen = functools.partial(
            _follow,
            registry="AcceleratorRegistry",
            connector="_AcceleratorConnector",
            precision="_precision_flag",
        )
        import_hooks.follow(name, chosen)
    for name in _FABRICS:
        chosen = functools.partial(
            _follow,
            registry="ACCELERATOR_REGISTRY",
            connector="_Connector",
            precision="_precision_input",
        )
        import_hooks.follow(name, chosen)


def _follow(module: ModuleType, *, registry: str, connector: str, precision: str) -> None:
    names: Any = module
    accelerator = _accelerator(names.Accelerator)
    getattr(names, registry).register(
        DEVICE_TYPE, accelerator, description="Workers of GT", override=True
    )
    kind = getattr(names, connector)

    def is_here(self: Any) -> bool:  # noqa: ANN401 - the framework's class
        return isinstance(self.accelerator, accelerator)

    choose_strategy, choose_precision = [
        _method(kind, name) for name in ("_choose_strategy", "_check_and_init_precision")
    ]

    def strategy(self: Any) -> object:  # noqa: ANN401
        """The strategy for one device, whatever the number of workers."""
        if not is_here(self):
            return choose_strategy(self)
        return names.SingleDeviceStrategy(device=torch.device(DEVICE_TYPE, 0))

    def plugin(self: Any) -> object:  # noqa: ANN401
        """Plugin that casts and scales losses on the device; Lightning's default is CUDA."""
        chosen = getattr(self, precision)
        if chosen not in _MIXED or not is_here(self):
            return choose_precision(self)
        return names.MixedPrecision(chosen, DEVICE_TYPE)

    kind._choose_strategy = strategy  # noqa: SLF001 - nothing public chooses
    kind._check_and_init_precision = plugin  # noqa: SLF001
    for name in ("_choose_auto_accelerator", "_choose_gpu_accelerator_backend"):
        _method(kind, name)
        setattr(kind, name, staticmethod(lambda: DEVICE_TYPE))


def _method(kind: Any, name: str) -> Callable[..., object]:  # noqa: ANN401
    """The method that will be replaced.

    Raises:
        RuntimeError: The class has no such method.
    """
    method: Callable[..., object] | None = getattr(kind, name, None)
    if method is None:
        raise RuntimeError(
            f"select_device(): this release of {kind.__module__.partition('.')[0]} has no "
            f"{kind.__name__}.{name}, which chooses its device"
        )
    return method


def _accelerator(base: Any) -> Any:  # noqa: ANN401 - the framework's class
    class MuxAccelerator(base):  # type: ignore[misc]
        """The device `mux` for Lightning: one device, wherever on the cluster its tensors are."""

        def setup_device(self, device: torch.device) -> None:
            """No effect: workers start at the first operator."""

        def teardown(self) -> None:
            """No effect: the session continues."""

        def get_device_stats(self, device: object) -> dict[str, object]:
            """Empty: `gt top` shows the workers' statistics."""
            del device
            return {}

        @staticmethod
        def parse_devices(devices: object) -> list[int]:
            """One device, whatever the program requests: workers are not devices of PyTorch."""
            del devices
            return [0]

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            """The device."""
            return [torch.device(DEVICE_TYPE, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            """One."""
            return 1

        @staticmethod
        def is_available() -> bool:
            """True."""
            return True

        @staticmethod
        def name() -> str:
            """`mux`."""
            return DEVICE_TYPE

    return MuxAccelerator
