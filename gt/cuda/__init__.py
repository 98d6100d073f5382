"""`gt.cuda`: queries that scripts make before they call `.cuda()`, which does not place anything
here.

The workers own the GPUs; the client neither needs one nor talks to one.
"""

import importlib
import pathlib
from typing import TYPE_CHECKING

from gt import config
from gt._core import Tensor
from gt.compat import missing, random
from gt.compat.tensor_types import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from gt.cuda import memory, streams
from gt.cuda.event import Event
from gt.cuda.memory import check_available as _check_available
from gt.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from gt.cuda.streams import ExternalStream, Stream, StreamContext
from gt.errors import NotSupported, OutOfMemoryError
from gt.sessions.session import synchronize as finish_work
from gt.tensors import devices, draws

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "ExternalStream",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "OutOfMemoryError",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]


def is_available() -> bool:
    """True if this machine has GPUs; each has a worker."""
    return device_count() > 0


def device_count() -> int:
    """Number of GPUs of this machine that CUDA_VISIBLE_DEVICES allows."""
    return config.gpu_count()


def current_device() -> int:
    """0, the first device, as in PyTorch; no call here depends on it."""
    _check_available()
    return 0


def get_device_name(device: object = None) -> str:
    """Name of a GPU of this machine, from its driver: `NVIDIA H200`.

    Args:
        device: A number or a device with one; by default the first.
    """
    _check_available()
    place, names = memory.index(device), _model_names()
    return names[place] if place < len(names) else "NVIDIA GPU"  # a container may hide the files


def get_device_properties(device: object = None) -> object:
    """Properties of a GPU, in PyTorch; GT does not have them.

    Raises:
        RuntimeError: This machine has no GPU.
        NotSupported: It has one: only its worker talks to the driver.
    """
    _check_available()
    raise NotSupported(
        f"get_device_properties({'' if device is None else device}): the client does not ask a "
        "GPU's driver; gt.cuda.get_device_name() says which GPU it is"
    )


def get_device_capability(device: object = None) -> tuple[int, int]:
    """Compute capability of a GPU, in PyTorch; GT does not have it.

    Raises:
        RuntimeError: This machine has no GPU.
        NotSupported: It has one: only its worker talks to the driver.
    """
    _check_available()
    raise NotSupported(
        f"get_device_capability({'' if device is None else device}): the client does not ask a "
        "GPU's driver; gt.cuda.get_device_name() says which GPU it is"
    )


def _model_names() -> list[str]:
    """Models of this machine's GPUs in bus order, from the driver's files."""
    files = sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information"))
    rows = [line.partition(":") for file in files for line in file.read_text().splitlines()]
    return [model.strip() for key, _, model in rows if key == "Model"]


def synchronize(device: object = None) -> None:  # noqa: ARG001 - accepted and ignored
    """Wait until everything emitted so far has run."""
    finish_work()


def stream(stream: Stream | None) -> StreamContext:
    """A `with` block for a stream; it changes nothing, as an instruction waits for its operands."""
    return StreamContext(stream)


def current_stream(device: object = None) -> Stream:
    """A stream; there is one order, that of the program."""
    return Stream(device)


default_stream = current_stream


def set_stream(stream: Stream) -> None:
    """Accepted and ignored: an instruction waits for its operands."""


def manual_seed(seed: int) -> None:
    """Seed every draw, as `gt.manual_seed` does: the numbers are the same on every device."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed every draw with a random number."""
    random.seed()


seed_all = seed


def initial_seed() -> int:
    """Last seed that was set."""
    return draws.initial_seed()


def get_rng_state(device: object = "cuda") -> Tensor:  # noqa: ARG001 - accepted
    """State of the generator, which all devices share."""
    return draws.get_rng_state()


def set_rng_state(new_state: Tensor, device: object = "cuda") -> None:  # noqa: ARG001 - accepted
    """Restore a state from `get_rng_state`."""
    draws.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """State of the generator as a list of one: all devices share it."""
    return [draws.get_rng_state()]


def set_rng_state_all(new_states: list[Tensor]) -> None:
    """Restore a state from `get_rng_state_all`."""
    draws.set_rng_state(new_states[0])


def is_bf16_supported(including_emulation: bool = True) -> bool:  # noqa: ARG001 - all do
    """True if this machine has GPUs: workers compute in bfloat16 on any of them."""
    return is_available()


def is_initialized() -> bool:
    """True if this machine has GPUs: they need no initialization."""
    return is_available()


def init() -> None:
    """No effect: the workers own the GPUs."""


def ipc_collect() -> None:
    """No effect: workers free memory when it is needed."""


def get_arch_list() -> list[str]:
    """Empty list: the client has no kernels; the workers bring theirs."""
    return []


def set_device(device: object) -> None:
    """Accepted and ignored: the dispatcher decides where values live."""
    devices.device(device)


class device(devices.device):  # noqa: N801 - PyTorch's name
    """A `with` block that would choose a GPU; it has no effect, as the dispatcher places values."""


if TYPE_CHECKING:
    from gt.cuda import amp as amp


def __getattr__(name: str) -> object:
    if name == "amp":
        return importlib.import_module("gt.cuda.amp")
    raise missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
