"""Make Accelerate and the Trainer of transformers choose the device `mux`.

Accelerate has a property for its default device. The Trainer's arguments ask Accelerate, but prefer
a GPU of this machine and count GPUs; so their method is replaced. Accelerate scales losses for
float16 on the devices that it lists; so its class is told of one more.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

import torch

from gt.compat import import_hooks
from gt.torch.elements import DEVICE_TYPE


@functools.cache
def select() -> None:
    """Set up each library when it is imported.

    Raises:
        RuntimeError: Accelerate has chosen another device.
    """
    import_hooks.follow("accelerate.state", _follow_state)
    import_hooks.follow("accelerate.accelerator", _follow_accelerator)
    import_hooks.follow("transformers.training_args", _follow_arguments)


def _follow_state(module: ModuleType) -> None:
    state: Any = vars(module)["PartialState"]
    chosen: torch.device | None = state._shared_state.get("device")  # noqa: SLF001 - asking makes one
    if chosen is not None and chosen.type != DEVICE_TYPE:
        raise RuntimeError(
            f"select_device(): Accelerate has chosen the device {chosen} already; call it before "
            "the program makes its first Accelerator or TrainingArguments"
        )
    state.default_device = property(_default_device)


def _default_device(state: object) -> torch.device:
    """Default device if the program names none."""
    del state
    return torch.device(DEVICE_TYPE, 0)


def _follow_accelerator(module: ModuleType) -> None:
    kind: Any = vars(module)["Accelerator"]
    begin = kind.__init__
    signature = inspect.signature(begin)

    @functools.wraps(begin)
    def begin_on_mux(accelerator: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401 - the framework's
        try:
            begin(accelerator, *args, **options)
        except ValueError:
            shared = accelerator.state._shared_state  # noqa: SLF001 - nothing public sets it
            is_mux = accelerator.device.type == DEVICE_TYPE
            if shared.get("_mixed_precision") != "fp16" or not is_mux:
                raise
            # It begins as in bfloat16; the type and the scaler follow.
            bound = signature.bind(accelerator, *args, **options)
            bound.arguments["mixed_precision"] = shared["_mixed_precision"] = "bf16"
            begin(*bound.args, **bound.kwargs)
            shared["_mixed_precision"] = "fp16"
            handler = accelerator.scaler_handler
            scaling = {} if handler is None else handler.to_kwargs()
            accelerator.scaler = torch.amp.GradScaler(DEVICE_TYPE, **scaling)

    kind.__init__ = begin_on_mux


def _follow_arguments(module: ModuleType) -> None:
    kind: Any = vars(module)["TrainingArguments"]
    ask = kind._setup_devices.func  # noqa: SLF001 - nothing public chooses the device

    def device(arguments: Any) -> torch.device:  # noqa: ANN401 - the framework's class
        chosen: torch.device = ask(arguments)
        if arguments.use_cpu:
            return chosen
        # One device: with more of them the Trainer wraps the model in DataParallel.
        arguments._n_gpu = 1  # noqa: SLF001
        return torch.device(DEVICE_TYPE, 0)

    # `bf16=True` checks it; workers compute in bfloat16 on any device.
    vars(module)["is_torch_bf16_gpu_available"] = lambda: True
    replaced = functools.cached_property(device)
    replaced.__set_name__(kind, "_setup_devices")
    kind._setup_devices = replaced  # noqa: SLF001
