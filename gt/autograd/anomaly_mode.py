"""Anomaly mode: a backward that fails, or gives NaN, names the line of its forward call."""

import warnings

from gt import _core

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def is_anomaly_enabled() -> bool:
    """True if anomaly mode is on."""
    return _core.anomaly_mode()[0]


def is_anomaly_check_nan_enabled() -> bool:
    """True if anomaly mode reads every gradient to find a NaN."""
    return _core.anomaly_mode()[1]


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Turn anomaly mode on or off; `gt.autograd.set_detect_anomaly` also does it for a block."""
    _core.set_anomaly_mode(enabled, check_nan)


class _Anomaly:
    """Sets the mode for a `with` block."""

    def __init__(self, enabled: bool, check_nan: bool) -> None:
        self._wanted = (enabled, check_nan)
        self._before = _core.anomaly_mode()

    def __enter__(self) -> None:
        self._before = _core.anomaly_mode()
        _core.set_anomaly_mode(*self._wanted)

    def __exit__(self, *reason: object) -> None:
        _core.set_anomaly_mode(*self._before)


class detect_anomaly(_Anomaly):  # noqa: N801 - PyTorch's name
    """Within the `with`, a failing backward names in a warning the line that called its forward.

    Args:
        check_nan: True reads every gradient, and raises for one with a NaN. It waits for each:
            slow.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )


class set_detect_anomaly(_Anomaly):  # noqa: N801 - PyTorch's name
    """Turns anomaly mode on or off at once; as a `with` block, until its end.

    Args:
        mode: True for on.
        check_nan: True reads every gradient, and raises for one with a NaN.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(mode, check_nan)
        _core.set_anomaly_mode(mode, check_nan)

    def __enter__(self) -> None:
        pass


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
