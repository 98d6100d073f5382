"""The warning of PyTorch's older names for parts of `gt.amp`."""

import warnings


def deprecated(kind: str, name: str, instead: str) -> None:
    """Warn that `gt.KIND.amp.NAME` is deprecated, with its replacement."""
    warnings.warn(
        f"`torch.{kind}.amp.{name}(args...)` is deprecated. "
        f"Please use `torch.amp.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )
