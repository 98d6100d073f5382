"""Switches of PyTorch's libraries, which programs set: GT takes them, and they change nothing."""

from dataclasses import dataclass, field


@dataclass
class Cudnn:
    """cuDNN's switches, which choose no kernel here: `benchmark`, `deterministic` and the like."""

    enabled: bool = True
    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = True

    def is_available(self) -> bool:
        """False: GT offers no way to it."""
        return False

    def version(self) -> None:
        """None: GT offers no way to it."""


@dataclass
class Matmul:
    """`allow_tf32`, which changes nothing: what a product computes in is a worker's."""

    allow_tf32: bool = False


@dataclass
class Cuda:
    """`gt.backends.cuda.matmul`."""

    matmul: Matmul = field(default_factory=Matmul)


class Mps:
    """Apple's GPUs, which GT has no worker for."""

    def is_available(self) -> bool:
        """False."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False


cudnn = Cudnn()
cuda = Cuda()
mps = Mps()

__all__ = ["cuda", "cudnn", "mps"]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
