"""LBFGS: directions from the last gradients and steps; its decisions need numbers of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.optim.optimizer import Optimizer, Params, check_rate
from gt.optim.wolfe import Point, search

CURVATURE_MIN = 1e-10  # least curvature of a step that is remembered, as in PyTorch


class LBFGS(Optimizer):
    """LBFGS, in PyTorch's numerics, for one group.

    A step reads values: one read for each evaluation of the closure (loss, slope and largest
    gradient together) and two for each direction. Numbers in the state are Python numbers.

    Args:
        params: Parameters.
        lr: Step length, or first length of the line search.
        max_iter: Limit of iterations in a step.
        max_eval: Limit of evaluations in a step (None: max_iter * 1.25).
        tolerance_grad: Stop if no entry of the gradient is larger.
        tolerance_change: Stop if neither loss nor parameters change by more.
        history_size: Number of steps that are remembered.
        line_search_fn: `strong_wolfe` or None.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Run up to max_iter iterations.

        Args:
            closure: Evaluates the model again, calls backward() and returns the loss. Required.

        Returns:
            The loss before the step.
        """
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        with gt.no_grad():
            return self._iterate(closure)

    def _iterate(self, closure: Callable[[], Tensor]) -> Tensor:
        group, state = self.param_groups[0], self.state[self.param_groups[0]["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        lr, tolerance = float(group["lr"]), group["tolerance_change"]
        first, point = self._evaluate(closure, 0.0, None)
        evaluations = 1
        state["func_evals"] += 1
        if point.largest <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, point.gradient, group["history_size"])
            state["d"], state["prev_flat_grad"] = direction, point.gradient
            state["prev_loss"] = before = point.loss
            slope, longest, total = _numbers(
                point.gradient.dot(direction), direction.abs().max(), point.gradient.abs().sum()
            )
            state["t"] = (min(1.0, 1.0 / total) if total else 1.0) * lr
            if state["n_iter"] > 1:
                state["t"] = lr
            if slope > -tolerance:
                break
            start = Point(0.0, point.loss, slope, point.largest, point.gradient)
            last = iteration == group["max_iter"]
            room = group["max_eval"] - evaluations
            point, count = self._move(closure, start, direction, longest, room, last=last)
            evaluations += count
            state["func_evals"] += count
            if last or evaluations >= group["max_eval"]:
                break
            if point.largest <= group["tolerance_grad"] or abs(state["t"]) * longest <= tolerance:
                break
            if abs(point.loss - before) < tolerance:
                break
        return first

    def _move(
        self,
        closure: Callable[[], Tensor],
        start: Point,
        direction: Tensor,
        longest: float,
        room: int,
        *,
        last: bool,
    ) -> tuple[Point, int]:
        """Moves along the direction; returns the point there and the number of evaluations."""
        group = self.param_groups[0]
        state = self.state[group["params"][0]]
        if group["line_search_fn"] is None:
            self._add(direction, state["t"])
            if last:  # nobody needs the loss there
                return start, 0
            return self._evaluate(closure, state["t"], direction)[1], 1
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        params = group["params"]
        origin = [param.clone() for param in params]

        def evaluate(t: float) -> Point:
            self._add(direction, t)
            point = self._evaluate(closure, t, direction)[1]
            for param, value in zip(params, origin, strict=True):
                param.copy_(value)
            return point

        point, count = search(evaluate, start, state["t"], longest, room)
        state["t"] = point.t
        self._add(direction, point.t)
        return point, count

    @staticmethod
    def _direction(state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
        """Minus the gradient, times the curvature estimate from the remembered steps."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        change, moved = gradient.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        (curvature,) = _numbers(change.dot(moved))
        changes: list[Tensor] = state["old_dirs"]
        steps: list[Tensor] = state["old_stps"]
        inverses: list[float] = state["ro"]
        if curvature > CURVATURE_MIN:
            if len(changes) == history_size:
                for remembered in (changes, steps, inverses):
                    del remembered[0]
            changes.append(change)
            steps.append(moved)
            inverses.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        shares: list[Tensor] = state.setdefault("al", [None] * history_size)
        direction = -gradient
        for place in reversed(range(len(changes))):
            shares[place] = steps[place].dot(direction) * inverses[place]
            direction = direction - changes[place] * shares[place]
        scale: Tensor | float = state["H_diag"]
        direction = direction * scale
        for place in range(len(changes)):
            share = changes[place].dot(direction) * inverses[place]
            direction = direction + steps[place] * (shares[place] - share)
        return direction

    def _evaluate(
        self, closure: Callable[[], Tensor], t: float, direction: Tensor | None
    ) -> tuple[Tensor, Point]:
        """The closure's loss, and the point with its numbers, by one read."""
        with gt.enable_grad():
            loss = closure()
        gradient = self._gradient()
        value = loss.detach().reshape(())
        slope = gradient.sum() if direction is None else gradient.dot(direction)
        number, largest, along = _numbers(value, gradient.abs().max(), slope)
        number = -number if self.param_groups[0]["maximize"] else number
        return loss, Point(t, number, along, largest, gradient)

    def _gradient(self) -> Tensor:
        flat = gt.cat(
            [
                gt.zeros_like(param).reshape(-1) if param.grad is None else param.grad.reshape(-1)
                for param in self.param_groups[0]["params"]
            ]
        )
        return -flat if self.param_groups[0]["maximize"] else flat

    def _add(self, direction: Tensor, t: float) -> None:
        step, offset = direction * t, 0
        for param in self.param_groups[0]["params"]:
            part = step[offset : offset + param.numel()]
            param.add_(part.reshape(param.shape))
            offset += param.numel()


def _numbers(*values: Tensor) -> list[float]:
    """The values as numbers, by one read."""
    return _core.read_numbers(gt.stack([value.to(gt.float64) for value in values]))
