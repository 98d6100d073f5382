"""How often kernels of gt._kernels have run in this process, from C++ or Python."""

from __future__ import annotations

try:
    from gt._kernels import calls as kernels_run
except ImportError:  # built without them

    def kernels_run() -> int:
        """None has."""
        return 0


__all__ = ["kernels_run"]
