"""A training step in the order of a plan: forwards, input gradients and weight gradients of stages.

A stage's input is a leaf, so each stage has its own backward pass, in two parts: to the input (B)
and to the weights (W). Models need no annotations: a gradient formula belongs to W if it leads to
no input, and shared intermediate values are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.autograd import backward
from gt.errors import InvalidValue
from gt.pipeline.plans import EMBEDDING, Plan
from gt.pipeline.schedules import Unit
from gt.tensors.creation import zeros

Part: TypeAlias = Callable[[Tensor], Tensor]
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Mark:
    """Instruction numbers of a unit: from `first` to before `end`."""

    step: int
    unit: Unit
    first: int
    end: int


@dataclass
class _Forward:
    """Values of one part of a stage for one micro-batch."""

    leaf: Tensor | None
    """Its input; None for one without a gradient."""
    output: Tensor


class Pipeline:
    """A model as stages, trained in the order of a plan.

    All losses and gradients equal those of a plain loop over the micro-batches, bit for bit: a
    schedule only orders the same instructions, and adds a weight's gradients in the order of
    micro-batches. A weight belongs to one stage.

    Args:
        plan: plan with the order.
        stages: functions of their inputs, as many as the plan has.
        loss: function of the last stage's output and a micro-batch's targets; it runs after the
            last stage, or spread if the plan has a `head`.
        embedding: function of a micro-batch's inputs, if these have no gradients; it runs before
            the first stage, or spread if the plan has an `embedding`.
        workers: indexes of each rank's workers. A stage's output and input gradient are then sent
            at once to a rank of one worker, rather than at the first read. For several workers the
            planner chooses the layout.
    """

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Part],
        loss: Loss,
        embedding: Part | None = None,
        workers: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if workers is not None and len(workers) != plan.ranks:
            text = f"workers of {len(workers)} ranks, and the plan has {plan.ranks}"
            raise InvalidValue(text)
        if len(stages) != plan.stages:
            raise InvalidValue(f"{len(stages)} stages, and {plan.schedule.title} has {plan.stages}")
        if plan.embedding and embedding is None:
            raise InvalidValue("the plan spreads an embedding, and there is none")
        self.plan = plan
        self.marks: list[Mark] = []
        """Instruction ranges of the units, for the steps since it was cleared."""
        self._stages, self._loss, self._embedding = list(stages), loss, embedding
        self._workers = workers
        self._step = 0
        self._work: dict[tuple[int, int], list[_Forward]] = {}
        # By source stage: values on their way to the next stage or the previous one.
        self._values: dict[tuple[int, int], Tensor] = {}
        self._gradients: dict[tuple[int, int], Tensor] = {}
        self._weights: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._losses: dict[int, Tensor] = {}

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Add the gradients of all micro-batches; returns their mean loss, not read yet.

        Args:
            inputs: one tensor for each micro-batch.
            targets: one tensor for each micro-batch.
        """
        count = self.plan.microbatches
        if len(inputs) != count or len(targets) != count:
            text = f"{len(inputs)} inputs and {len(targets)} targets, and the plan has {count}"
            raise InvalidValue(f"{text} micro-batches")
        for unit in self.plan.order:
            first = _core.numbered()
            if unit.kind == "F":
                self._forward(unit, inputs, targets)
            elif unit.kind == "W":
                self._add_weights(unit)
            else:
                self._backward(unit)
            self.marks.append(Mark(self._step, unit, first, _core.numbered()))
        self._step += 1
        total = zeros(())
        for number in range(count):
            total = total + self._losses.pop(number)
        return total

    def _parts(self, unit: Unit, targets: Sequence[Tensor]) -> list[Part]:
        """The functions of a unit's stage."""
        stage, last = unit.stage, self.plan.stages - 1
        count, target = self.plan.microbatches, targets[unit.microbatch]

        def mean(output: Tensor) -> Tensor:
            return self._loss(output, target) / count

        parts = [self._stages[stage]] if 0 <= stage <= last else []
        if self._embedding is not None and stage == (EMBEDDING if self.plan.embedding else 0):
            parts.insert(0, self._embedding)
        if stage == (last + 1 if self.plan.head else last):
            parts.append(mean)
        return parts

    def _forward(self, unit: Unit, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        stage, number, _ = unit
        value = self._values.pop((stage - 1, number), None)
        is_first = value is None
        value = inputs[number] if value is None else value
        work: list[_Forward] = []
        for part in self._parts(unit, targets):
            leaf = None if is_first else value.detach().requires_grad_()
            value = part(value if leaf is None else leaf)
            work.append(_Forward(leaf, value))
            is_first = False
        self._work[stage, number] = work
        if stage == (self.plan.stages if self.plan.head else self.plan.stages - 1):
            self._losses[number] = value.detach()
        else:
            self._values[stage, number] = self._sent(value.detach(), stage + 1)

    def _sent(self, value: Tensor, stage: int) -> Tensor:
        """A value moved towards the workers of a stage."""
        if self._workers is None:
            return value
        indexes = {one for rank in self.plan.ranks_of(stage) for one in self._workers[rank]}
        if len(indexes) > 1:
            return value
        return _core.distribute(value, None, f"replicate@[{indexes.pop()}]")

    def _backward(self, unit: Unit) -> None:
        """Backward to the input; if the schedule does not split, to the weights too."""
        stage, number, _ = unit
        gradient = self._gradients.pop((stage + 1, number), None)
        weights: list[Callable[[], None]] = []
        for part in reversed(self._work.pop((stage, number))):
            if self.plan.schedule.splits:
                gradient = _split(part, gradient, weights)
            else:
                backward(part.output, gradient)
                gradient = None if part.leaf is None else part.leaf.grad
        if gradient is not None:
            self._gradients[stage, number] = self._sent(gradient, stage - 1)
        self._weights[stage, number] = weights

    def _add_weights(self, unit: Unit) -> None:
        stage, number, _ = unit
        if stage == EMBEDDING:  # its backward is only to weights
            self._backward(unit)
        for add in self._weights.pop((stage, number)):
            add()


def _split(
    part: _Forward, gradient: Tensor | None, weights: list[Callable[[], None]]
) -> Tensor | None:
    """The gradient of a part's input; functions that add the gradients of its weights
    are appended.
    """
    leaves = [] if part.leaf is None else [part.leaf]
    gradients, rest = _core.split_backward([part.output], [gradient], leaves)
    weights.append(rest.accumulate)
    return gradients[0] if gradients else None
