"""Averages of a model's weights over training, and the schedule for them."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import gt
from gt._core import Tensor
from gt.nn.batchnorm import _BatchNorm
from gt.nn.module import Module
from gt.optim.factors import Factor
from gt.optim.lr_scheduler.base import LRScheduler
from gt.optim.lr_scheduler.cycle import listed
from gt.optim.optimizer import Optimizer
from gt.tensors.devices import check_device

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average: TypeAlias = Callable[[Tensor, Tensor, "Tensor | int"], Tensor]
MultiAverage: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], "Tensor | int"], None]


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """A function that updates lists of averages by an exponential moving average, in place."""
    _check_decay(decay)

    def ema_update(
        ema_params: Sequence[Tensor], current_params: Sequence[Tensor], num_averaged: Tensor | int
    ) -> None:
        del num_averaged
        with gt.no_grad():
            for average, current in zip(ema_params, current_params, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(current.to(average.dtype), 1 - decay)
                else:
                    average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """A function that updates lists of averages to the mean of all, in place."""

    def swa_update(
        averaged_params: Sequence[Tensor],
        current_params: Sequence[Tensor],
        num_averaged: Tensor | int,
    ) -> None:
        with gt.no_grad():
            for average, current in zip(averaged_params, current_params, strict=True):
                average.add_((current - average) / (num_averaged + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function that returns the next exponential moving average of one parameter."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        del num_averaged
        with gt.no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """A function that returns the next mean of one parameter."""

    def swa_update(
        averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int
    ) -> Tensor:
        with gt.no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1].")


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; `update_parameters` updates them.

    Args:
        model: The model that is trained.
        device: Accepted without effect.
        avg_fn: The next average from (average, parameter, number averaged); the mean by default.
        multi_avg_fn: A function that does so for lists, in place.
        use_buffers: Whether buffers are averaged, too; else they are copied.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: object = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        check_device(device)
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", gt.tensor(0, dtype=gt.int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the model's
        model = self.get_submodule("module")
        return model(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Update the averages by the parameters of `model`; the first call copies them.

        The number of averaged models is read.
        """
        averages, currents = (
            _averaged(self.module, self.use_buffers),
            _averaged(model, self.use_buffers),
        )
        first = self.n_averaged.item() == 0
        with gt.no_grad():
            pairs = list(zip(averages, currents, strict=True))
            if first:
                for average, current in pairs:
                    average.copy_(current.detach())
            elif self.multi_avg_fn is not None:
                details = [(average.detach(), current.detach()) for average, current in pairs]
                averaged, values = [a for a, _ in details], [c for _, c in details]
                self.multi_avg_fn(averaged, values, self.n_averaged)
            else:
                following = self.avg_fn or get_swa_avg_fn()
                for average, current in pairs:
                    new = following(average.detach(), current.detach(), self.n_averaged)
                    average.copy_(new)
            if not self.use_buffers:
                buffers = zip(self.module.buffers(), model.buffers(), strict=True)
                for average, current in buffers:
                    average.copy_(current.detach())
            self.n_averaged.add_(1)


def _averaged(model: Module, use_buffers: bool) -> Iterable[Tensor]:
    buffers = model.buffers() if use_buffers else ()
    return itertools.chain(model.parameters(), buffers)


def update_bn(loader: Iterable[Any], model: Module, device: object = None) -> None:
    """Recompute the running statistics of a model's batch norms over `loader`.

    Args:
        loader: Batches: tensors, or sequences whose first entry is the model's input.
        model: The model; only its statistics change.
        device: Accepted without effect.
    """
    momenta = {module: module.momentum for module in model.modules() if _is_norm(module)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()  # type: ignore[operator, misc]
        module.momentum = None  # the mean of all batches
    with gt.no_grad():
        for batch in loader:
            input = batch[0] if isinstance(batch, list | tuple) else batch
            model(input if device is None else input.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _is_norm(module: Any) -> bool:  # noqa: ANN401 - of a tree of modules
    return isinstance(module, _BatchNorm)


class SWALR(LRScheduler):
    """The rate moves to a constant and stays there.

    Args:
        optimizer: The optimizer whose rates are set.
        swa_lr: The final rate; a list has one for each group.
        anneal_epochs: Number of steps to the final rate.
        anneal_strategy: `cos` or `linear`.
        last_epoch: Epoch at which to continue.

    Raises:
        ValueError: An option that PyTorch also refuses.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = listed("swa_lr", swa_lr, len(optimizer.param_groups))
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not _is_count(anneal_epochs):
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        """The rate of each group: a mix of its initial and its final rate."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, after = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            start = end = group["swa_lr"]
            if before != 1:  # the initial rate, from the present one and the progress
                start = (group["lr"] - before * end) / (1 - before)
            rates.append(end * after + start * (1 - after))
        return rates

    def _part(self, step: int) -> float:
        """Fraction of the annealing that is done at `step`, from 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
