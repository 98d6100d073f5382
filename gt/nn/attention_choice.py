"""Choice of attention kernels: accepted and recorded without effect, since a worker chooses."""

import contextlib
import enum
from collections.abc import Iterator

from gt.compat.backends import cuda


class SDPBackend(enum.IntEnum):
    """Kernels of scaled dot-product attention, with PyTorch's numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


# Names in gt.backends.cuda.
_KINDS = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


@contextlib.contextmanager
def sdpa_kernel(
    backends: SDPBackend | list[SDPBackend], set_priority: bool = False
) -> Iterator[None]:
    """Within the `with`, `gt.backends.cuda` reports only these kernels as allowed.

    A worker chooses its kernel independently of it, so the results do not change.

    Args:
        backends: One or several.
        set_priority: Accepted and ignored.

    Raises:
        AssertionError: `backends` is neither a kernel nor a list.
    """
    assert isinstance(backends, SDPBackend | list), (
        "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
        f"{type(backends).__name__}"
    )
    del set_priority
    allowed = backends if isinstance(backends, list) else [backends]
    before = dict(cuda.attention)
    cuda.attention.update({name: kind in allowed for kind, name in _KINDS.items()})
    try:
        yield
    finally:
        cuda.attention.clear()
        cuda.attention.update(before)
