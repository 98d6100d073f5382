"""The warning of PyTorch's older names for what `gt.amp` has."""

import warnings


def deprecated(kind: str, name: str, instead: str) -> None:
    """Say what to write instead of `gt.KIND.amp.NAME`."""
    warnings.warn(
        f"`torch.{kind}.amp.{name}(args...)` is deprecated. "
        f"Please use `torch.amp.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )
