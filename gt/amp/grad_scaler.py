"""`GradScaler`: gradients of float16 are computed scaled, so that small ones do not become zero.

Infinite and NaN gradients are found on the workers and not read: the scale follows from them by
instructions, and a step that is to be skipped is computed and then undone (`gt/amp/undo.py`).
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import gt
from gt._core import Tensor
from gt.amp.undo import Undo
from gt.errors import InvalidUse, InvalidValue
from gt.optim import Optimizer

__all__ = ["GradScaler"]

Outputs: TypeAlias = Any  # a tensor, or an iterable of such


class _Stage(enum.Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Progress:
    """Stage of one optimizer since the last update()."""

    def __init__(self) -> None:
        self.stage = _Stage.READY
        self.found_inf: Tensor | None = None  # 0-d, above zero where a gradient is not finite


class GradScaler:
    """Scales losses, and steps of optimizers unless a gradient is infinite or NaN.

    Args:
        device: accepted without effect. The scaler is enabled on CPUs, too, where PyTorch's for
            "cuda" is not.
        init_scale: first scale.
        growth_factor: factor of the scale after `growth_interval` steps without infinity; more than
            1.
        backoff_factor: factor of the scale after a step with an infinity; less than 1.
        growth_interval: number of steps.
        enabled: False for a scaler that does nothing but call optimizers.

    Raises:
        AssertionError: factors outside of their ranges.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale, self._init_tracker = init_scale, 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._scale: Tensor | None = None
        self._tracker: Tensor | None = None  # steps without infinity since the scale changed
        self._progress: dict[int, _Progress] = {}

    # ---- a step ----

    def scale(self, outputs: Outputs) -> Outputs:
        """Outputs, a tensor or an iterable of such, multiplied by the scale."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = gt.full((), float(self._init_scale), dtype=gt.float32)
            self._tracker = gt.full((), self._init_tracker, dtype=gt.int32)
        return _multiplied(outputs, self._scale)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, as before clipping.

        Raises:
            RuntimeError: called a second time, or after step().
            ValueError: there are gradients of float16.
        """
        if not self._enabled:
            return
        scale, _ = self._made("unscale_")
        progress = self._progress.setdefault(id(optimizer), _Progress())
        if progress.stage is _Stage.UNSCALED:
            raise InvalidUse(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if progress.stage is _Stage.STEPPED:
            raise InvalidUse("unscale_() is being called after step().")
        progress.found_inf = _unscale(optimizer, scale.double().reciprocal().float())
        progress.stage = _Stage.UNSCALED

    def step(self, optimizer: Optimizer, *args: object, **kwargs: object) -> object:
        """Step an optimizer, unless one of its gradients is infinite or NaN.

        Its gradients are divided by the scale first, unless `unscale_` did so. Nothing is read,
        except for an optimizer that counts its steps or makes state in this one: then one read
        tells if the step is skipped, as PyTorch reads at every step.

        Args:
            optimizer: an optimizer whose gradients come from scaled outputs.
            args: positional arguments of its step().
            kwargs: keyword arguments of its step(); no closure.

        Returns:
            The result of its step(); None if it is known that the step is skipped.

        Raises:
            RuntimeError: a closure is passed, or this is a second step since the last update().
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)  # type: ignore[arg-type]
        if "closure" in kwargs:
            raise InvalidUse("Closure use is not currently supported if GradScaler is enabled.")
        self._made("step")
        progress = self._progress.setdefault(id(optimizer), _Progress())
        if progress.stage is _Stage.STEPPED:
            raise InvalidUse("step() has already been called since the last update().")
        if progress.stage is _Stage.READY:
            self.unscale_(optimizer)
        if progress.found_inf is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        undo = Undo(optimizer)
        returned = optimizer.step(*args, **kwargs)  # type: ignore[arg-type]
        is_skipped = undo.undo_where(progress.found_inf > 0)
        progress.stage = _Stage.STEPPED
        return None if is_skipped else returned

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Change the scale by the gradients found since the last update().

        Args:
            new_scale: the scale to set instead.

        Raises:
            AssertionError: there was no scale() or step() before, or the new scale requires a
                gradient or has several elements.
        """
        if not self._enabled:
            return
        scale, tracker = self._made("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            flags = [p.found_inf for p in self._progress.values() if p.found_inf is not None]
            if not flags:
                raise AssertionError("No inf checks were recorded prior to update.")
            is_found = flags[0] > 0
            for other in flags[1:]:
                is_found = is_found | (other > 0)
            self._change(scale, tracker, is_found)
        self._progress = {}

    def _set_scale(self, scale: Tensor, new_scale: float | Tensor) -> None:
        with gt.no_grad():
            if not isinstance(new_scale, Tensor):
                scale.fill_(float(new_scale))
                return
            if new_scale.numel() != 1 or new_scale.requires_grad:
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                    "torch.FloatTensor with requires_grad=False."
                )
            scale.copy_(new_scale.reshape(()))

    def _change(self, scale: Tensor, tracker: Tensor, is_found: Tensor) -> None:
        """Updates scale and tracker as PyTorch's `_amp_update_scale_`, by instructions."""
        with gt.no_grad():
            steps = tracker + 1
            grows = steps == self._growth_interval
            grown = scale * self._growth_factor
            next_scale = gt.where(grows & grown.isfinite(), grown, scale)
            scale.copy_(gt.where(is_found, scale * self._backoff_factor, next_scale))
            tracker.copy_(gt.where(is_found | grows, gt.zeros_like(steps), steps))

    def _made(self, name: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._tracker is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._tracker

    # ---- what it is set to ----

    def get_scale(self) -> float:
        """The scale, which is read; 1 if not enabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale if self._scale is None else self._scale.item())

    def get_growth_factor(self) -> float:
        """Factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Factor by which the scale shrinks after an infinity."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks after an infinity."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Number of steps without infinity after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of steps without infinity after which the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """True if the scaler is enabled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and the settings that change it, as numbers, which are read; empty if not
        enabled.
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(
                self._init_tracker if self._tracker is None else self._tracker.item()
            ),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that state_dict() returned; does nothing if not enabled.

        Raises:
            RuntimeError: the state is that of a scaler that was not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise InvalidUse(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale, self._init_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._scale = self._tracker = None  # made of these numbers by the next scale()


def _multiplied(outputs: Outputs, scale: Tensor) -> Outputs:
    if isinstance(outputs, Tensor):
        return outputs * scale
    if isinstance(outputs, Iterable):
        listed = [_multiplied(output, scale) for output in outputs]
        return type(outputs)(listed) if isinstance(outputs, list | tuple) else listed
    raise InvalidValue("outputs must be a Tensor or an iterable of Tensors")


def _unscale(optimizer: Optimizer, inverse: Tensor) -> Tensor | None:
    """Multiplies gradients in place; returns true if one was not finite, None without gradients."""
    result: Tensor | None = None
    with gt.no_grad():
        for param in (param for group in optimizer.param_groups for param in group["params"]):
            grad = param.grad
            if grad is None:
                continue
            if grad.dtype == gt.float16:
                raise InvalidValue("Attempting to unscale FP16 gradients.")
            is_bad = (~grad.isfinite()).any()
            result = is_bad if result is None else result | is_bad
            grad.mul_(inverse)
    return None if result is None else result.to(gt.float32)
