"""The training loop: one program for all workers, written as for a single one."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gt
from gt.distributed import DeviceMesh
from gt.errors import InvalidUse, OutOfMemoryError, UnreadFailureWarning
from gt.guava import batches, checkpoint, console
from gt.guava.batches import MicroBatch
from gt.guava.boundaries import ActivationCache
from gt.guava.checkpoint import Position
from gt.guava.config import DistributedConfig
from gt.guava.library import Library, Model, Value
from gt.guava.metrics import Metrics
from gt.guava.split import Split

__all__ = ["Trainer", "loss_of", "prediction"]

Loss = Callable[[Any, Any], Value]
PARTS_MAX = 64  # if a 64th of a batch does not fit, its size is not the problem


@dataclasses.dataclass(kw_only=True)
class Trainer:
    """A model, its optimizer, and their placement.

    Args:
        config: settings of the run.
        split: division of the workers.
        library: library of the model.
        model: placed on the workers.
        optimizer: for the model's parameters.
        loss_fn: function of outputs and target, or of outputs and batch if the batch is a
            dictionary.
        meshes: mesh of each stage's workers.
        metrics: receives each step's values.
        parts: number of parts of a micro-batch, if memory does not suffice.
        made: number of steps in this run.
        kept: receives the stages' outputs, if they are kept.
    """

    config: DistributedConfig
    split: Split
    library: Library
    model: Model
    optimizer: Value
    loss_fn: Loss | None
    meshes: Sequence[DeviceMesh]
    metrics: Metrics
    parts: int = 1
    made: int = 0
    kept: ActivationCache | None = None

    def run(self, loader: Iterable[Any], epochs: int, position: Position) -> None:
        """Train from a position to the end of the last epoch.

        Raises:
            OutOfMemoryError: a step does not fit; the message suggests remedies.
        """
        try:
            self._epochs(loader, epochs, position)
        except OutOfMemoryError as error:
            _forget_failures()
            raise _out_of_memory(error, self) from error

    def _epochs(self, loader: Iterable[Any], epochs: int, position: Position) -> None:
        count = self.split.batches_a_step()
        self.model.train()
        for epoch in range(position.epoch, epochs):
            taken, drawn = loader, 0
            begin: Mapping[str, Any] = checkpoint.random_state()
            if epoch == position.epoch and position.epoch_random is not None:
                begin, drawn = position.epoch_random, position.batches
                taken = checkpoint.resumed(loader, drawn, begin)
            for step in batches.steps_of(taken, count):
                drawn += len(step)
                position = Position(
                    step=position.step + 1, epoch=epoch, batches=drawn, epoch_random=begin
                )
                self._step(step, position)
                if self.config.save_interval and position.step % self.config.save_interval == 0:
                    self.save(position)
        self.metrics.flush()

    def save(self, position: Position) -> None:
        """Write a checkpoint."""
        folder = Path(self.config.checkpoint_dir)
        path = checkpoint.save(folder, self.library, self.model, self.optimizer, position)
        console.say(f"saved {path}")

    def _step(self, step: Sequence[Any], position: Position) -> None:
        """One step: forward and backward of each micro-batch, then the optimizer."""
        loss, samples = self._gradients(step) if self.made else self._first(step)
        self.made += 1
        if self.kept is not None:
            self.kept.end()
        parameters = [one for one in self.model.parameters() if one.grad is not None]
        utils = self.library.module.nn.utils
        limit = self.config.max_grad_norm
        if limit is None:
            norm = utils.get_total_norm([one.grad for one in parameters])
        else:
            norm = utils.clip_grad_norm_(parameters, limit)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.metrics.add(
            step=position.step,
            epoch=position.epoch,
            loss=loss,
            rate=self.optimizer.param_groups[0]["lr"],
            norm=norm,
            samples=samples,
        )

    def _first(self, step: Sequence[Any]) -> tuple[Value, int]:
        """Run the first step; if memory does not suffice, again in smaller parts.

        Only buffers and generators have changed by then; they are restored.
        """
        buffers = [(one, one.detach().clone()) for one in self.model.buffers()]
        random = checkpoint.random_state()
        while True:
            fits = self._fits(step)
            if fits is not None:
                return fits
            self.optimizer.zero_grad()
            checkpoint.set_random_state(random)
            for one, before in buffers:
                one.data = before.clone()
            self.parts *= 2
            console.say(f"out of memory: each micro-batch runs in {self.parts} parts from now")

    def _fits(self, step: Sequence[Any]) -> tuple[Value, int] | None:
        """Forward and backward of a step, once all of it has run; None if it may fit in smaller
        parts.
        """
        try:
            done = self._gradients(step)
            gt.synchronize()
        except OutOfMemoryError:
            _forget_failures()
            if self.parts >= min(PARTS_MAX, max(map(batches.rows, step))):
                raise
            return None
        return done

    def _gradients(self, step: Sequence[Any]) -> tuple[Value, int]:
        """Loss and number of samples of the step."""
        if self.kept is not None:
            self.kept.begin()
        micro_batches = batches.micro_batches(step, self.split.micro_batches, self.parts)
        waiting: list[Value] = []
        total: Value | None = None
        for micro in micro_batches:
            loss = self._forward(micro)
            total = loss.detach() if total is None else total + loss.detach()
            waiting.append(loss)
            if (
                len(waiting) >= self.split.stages
            ):  # one backward for each forward, once all are busy
                waiting.pop(0).backward()
        for loss in waiting:
            loss.backward()
        return total, sum(batches.rows(batch) for batch in step)

    def _forward(self, micro: MicroBatch) -> Value:
        """Contribution of a micro-batch to the step's loss."""
        placed = micro.mapped(self._upload(self.meshes[0]), self._upload(self.meshes[-1]))
        with self._autocast():
            outputs = prediction(self.model, placed.inputs)
            loss = loss_of(outputs, placed, self.loss_fn, self.library)
        return loss if micro.share == 1 else loss * micro.share

    def _upload(self, mesh: DeviceMesh) -> Callable[[Any], Value]:
        return lambda leaf: self.library.enter(batches.placed(leaf, mesh))

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if not self.config.use_amp:
            return contextlib.nullcontext()
        module = self.library.module
        context: contextlib.AbstractContextManager[object] = module.autocast(
            self.library.device, dtype=module.bfloat16
        )
        return context


def prediction(model: Model, inputs: Any) -> Any:  # noqa: ANN401 - what a model takes and gives
    """Output of the model for a batch; for a dictionary, forward gets the items that it has names
    for.
    """
    if not isinstance(inputs, Mapping):
        return model(inputs)
    parameters = inspect.signature(model.forward).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return model(**{name: one for name, one in inputs.items() if takes_all or name in parameters})


def loss_of(outputs: Any, micro: MicroBatch, loss_fn: Loss | None, library: Library) -> Value:  # noqa: ANN401
    """The loss of outputs: by `loss_fn`, the model's own, or cross-entropy.

    Raises:
        InvalidUse: none of these exists.
    """
    if micro.target is None:
        if loss_fn is not None:
            return loss_fn(outputs, micro.inputs)
        loss = _entry(outputs, "loss")
        if loss is None:
            raise InvalidUse(
                "a batch is a dictionary, and the model's output has no loss: pass "
                "start_training(loss_fn=...), which takes the output and the batch"
            )
        return loss
    if loss_fn is not None:
        return loss_fn(outputs, micro.target)
    scores = _entry(outputs, "logits")
    return library.cross_entropy(outputs if scores is None else scores, micro.target)


def _entry(outputs: Any, name: str) -> Value | None:  # noqa: ANN401 - what a model gives
    """An entry or attribute of a model's output."""
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    return getattr(outputs, name, None)


def _forget_failures() -> None:
    """Consume the other out-of-memory failures, so that no later call reports them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadFailureWarning)
        # Terminates: each failure is raised once.
        while not _is_quiet():
            pass


def _is_quiet() -> bool:
    with contextlib.suppress(OutOfMemoryError):
        gt.synchronize()
        return True
    return False


def _out_of_memory(error: OutOfMemoryError, trainer: Trainer) -> OutOfMemoryError:
    """An out-of-memory error that lists the contents of the memory and remedies."""
    model = list(trainer.model.parameters())
    size = sum(one.numel() * one.element_size() for one in model) / 1e6
    workers = "; ".join(
        f"worker {one['worker']:.0f} held {one.get('bytes_peak', 0) / 1e6:.0f} MB at the most"
        for one in gt.debug.get_worker_stats()
    )
    return OutOfMemoryError(
        f"{error}\nguava: a step does not fit. Weights and gradients take {size:.0f} MB each, "
        f"AdamW's state {2 * size:.0f} MB, the rest are activations ({workers}). Set a smaller "
        f"batch_size (now {trainer.config.batch_size}), use_amp=True, or gradient_checkpointing="
        "True (recompute)"
    )
