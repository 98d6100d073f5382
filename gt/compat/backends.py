"""Switches of PyTorch's libraries, which programs set: GT accepts them without effect."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from gt.compat import misses


@dataclass
class Cudnn:
    """cuDNN's switches, which select no kernel here: `benchmark`, `deterministic` and the like."""

    enabled: bool = True
    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = True
    benchmark_limit: int = 10
    fp32_precision: str = "none"

    def is_available(self) -> bool:
        """False: GT does not offer it."""
        return False

    def version(self) -> None:
        """None: GT does not offer it."""

    @contextlib.contextmanager
    def flags(self, **switches: object) -> Iterator[None]:
        """A `with` block with these switches, which are accepted like the attributes."""
        before = {name: getattr(self, name) for name in switches}
        for name, value in switches.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


@dataclass
class Matmul:
    """Switches without effect: a worker decides on the dtype in which a product computes."""

    allow_tf32: bool = False
    allow_fp16_reduced_precision_reduction: bool = True
    allow_bf16_reduced_precision_reduction: bool = True
    fp32_precision: str = "none"


@dataclass
class Cuda:
    """`gt.backends.cuda`: switches of matmul, and of the kernels for attention."""

    matmul: Matmul = field(default_factory=Matmul)
    attention: dict[str, bool] = field(default_factory=dict)

    def is_built(self) -> bool:
        """False: GT is built without CUDA; its workers bring PyTorch's."""
        return False

    def _enable(self, kind: str, enabled: bool) -> None:
        self.attention[kind] = enabled

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Accepted without effect: a worker chooses its kernel."""
        self._enable("flash", enabled)

    def enable_mem_efficient_sdp(self, enabled: bool) -> None:
        """Accepted without effect: a worker chooses its kernel."""
        self._enable("mem_efficient", enabled)

    def enable_math_sdp(self, enabled: bool) -> None:
        """Accepted without effect: a worker chooses its kernel."""
        self._enable("math", enabled)

    def enable_cudnn_sdp(self, enabled: bool) -> None:
        """Accepted without effect: a worker chooses its kernel."""
        self._enable("cudnn", enabled)

    def flash_sdp_enabled(self) -> bool:
        """The value set last, else True."""
        return self.attention.get("flash", True)

    def mem_efficient_sdp_enabled(self) -> bool:
        """The value set last, else True."""
        return self.attention.get("mem_efficient", True)

    def math_sdp_enabled(self) -> bool:
        """The value set last, else True."""
        return self.attention.get("math", True)

    def cudnn_sdp_enabled(self) -> bool:
        """The value set last, else True."""
        return self.attention.get("cudnn", True)

    def is_flash_attention_available(self) -> bool:
        """False: a worker chooses its kernel."""
        return False

    def preferred_linalg_library(self, backend: str | None = None) -> str:
        """Accepted without effect: a worker's PyTorch chooses the library, as it does
        by default.
        """
        del backend
        return "default"

    preferred_blas_library = preferred_linalg_library

    @contextlib.contextmanager
    def sdp_kernel(
        self,
        enable_flash: bool = True,
        enable_math: bool = True,
        enable_mem_efficient: bool = True,
        enable_cudnn: bool = True,
    ) -> Iterator[None]:
        """A `with` block with these switches; gt.nn.attention.sdpa_kernel is the newer form."""
        warnings.warn(
            "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager "
            "will be removed. Please see `torch.nn.attention.sdpa_kernel()` for the new context "
            "manager, with updated signature.",
            FutureWarning,
            stacklevel=3,  # behind contextlib's
        )
        before = dict(self.attention)
        self.attention |= {
            "flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient,
            "cudnn": enable_cudnn,
        }  # fmt: skip
        try:
            yield
        finally:
            self.attention = before


@dataclass
class Library:
    """A library of CPU kernels, which the workers have and the client does not."""

    enabled: bool = True

    def is_available(self) -> bool:
        """False: GT does not offer it."""
        return False


class Mha:
    """Switch of PyTorch's fast path for attention layers; it is accepted, and GT has one path."""

    enabled = True

    def get_fastpath_enabled(self) -> bool:
        """The value set last, else True."""
        return self.enabled

    def set_fastpath_enabled(self, value: bool) -> None:
        """Accepted without effect: there is one path."""
        self.enabled = value


class Mps:
    """Apple's GPUs, for which GT has no worker."""

    def is_available(self) -> bool:
        """False."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False


cudnn = Cudnn()
cuda = Cuda()
mha = Mha()
mps = Mps()
mkl, mkldnn, openmp, opt_einsum = Library(), Library(), Library(), Library()

__all__ = ["cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

# `import gt.backends.cudnn as cudnn`, as in PyTorch: an object in place of a module.
sys.modules.update({f"{__name__}.{name}": globals()[name] for name in __all__})


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
