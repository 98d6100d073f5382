"""Orchestrator: trains a model on the workers that a configuration asks for."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import gt
from gt.distributed import DeviceMesh
from gt.errors import InvalidUse, InvalidValue
from gt.guava import batches, checkpoint, cluster, console, links, placing, recompute, stages
from gt.guava.boundaries import ActivationCache, Boundaries
from gt.guava.checkpoint import Position
from gt.guava.config import DistributedConfig
from gt.guava.library import Library, Model, Value, library_of
from gt.guava.metrics import Metrics
from gt.guava.split import split
from gt.guava.stages import Stage
from gt.guava.training import Loss, Trainer, prediction

__all__ = ["Orchestrator"]


class Orchestrator:
    """Trains a model, in this program, on workers of this machine or of several.

    Args:
        config: the settings.
        mode: "local" starts `num_workers` workers here; "orchestrator" listens on `master_ip` and
            `master_port`, and waits until that many have joined from all machines.

    Raises:
        ConfigError: the workers cannot be divided as requested.
        ConnectionLost: the address is not available.
    """

    def __init__(
        self, config: DistributedConfig, mode: Literal["local", "orchestrator"] = "local"
    ) -> None:
        if mode not in ("local", "orchestrator"):
            raise InvalidValue(f'Orchestrator: mode={mode!r}: expected "local" or "orchestrator"')
        split(config)  # reports misfits before anything starts
        self.config = config
        self.model: Model | None = None
        self.optimizer: Value | None = None
        self._library: Library | None = None
        self._profiles_memory = False
        self._kept: ActivationCache | None = None
        self._links: list[str] = []
        self._placed: list[Stage] | None = None
        self._dispatcher: cluster.Dispatcher | None = None
        if mode == "local":
            cluster.start_here(config.num_workers)
        else:
            self._links = links.dispatcher_options(config)
            self._dispatcher = cluster.Dispatcher(config.master_ip, config.master_port, self._links)
            atexit.register(self._dispatcher.close)
            cluster.join(self._dispatcher, config.num_workers)

    @property
    def address(self) -> str | None:
        """Address at which workers join; None if they belong to this program."""
        return None if self._dispatcher is None else self._dispatcher.address

    @property
    def activations(self) -> Sequence[Sequence[Value]]:
        """Outputs of the stages in each of the last steps, with `allow_act_reuse`; else empty."""
        return [] if self._kept is None else list(self._kept)

    def register_model(self, model: Model) -> None:
        """Register a model, which moves to the workers; its code is unchanged.

        Args:
            model: a torch.nn.Module or a gt.nn.Module.

        Raises:
            InvalidType: the model is a module of neither library.
        """
        self._library = library_of(model)
        self.model, self.optimizer, self._placed = model, None, None

    def enable_memory_profiling(self) -> None:
        """Log each worker's memory in use and its peak with every line."""
        self._profiles_memory = True

    def start_training(
        self,
        dataloader: Iterable[Any],
        num_epochs: int = 10,
        *,
        loss_fn: Loss | None = None,
        optimizer: Value | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Metrics:
        """Train.

        Args:
            dataloader: yields `(inputs, target)`, tokens [b, t] of which each is followed by its
                target, or dictionaries of the model's arguments.
            num_epochs: number of passes over it.
            loss_fn: of the model's output and the target (of a dictionary: the batch); a mean over
                samples. Without it cross-entropy, or the loss that the model gives.
            optimizer: optimizer of the model's parameters, from the model's library; AdamW by
                default.
            resume: "latest" continues from the last checkpoint, if there is one; or the folder of a
                checkpoint.

        Returns:
            Measurements of each step.

        Raises:
            InvalidUse: no model was registered.
            OutOfMemoryError: a step does not fit; the message suggests remedies.
        """
        if self.model is None or self._library is None:
            raise InvalidUse("start_training: call register_model(model) first")
        parted = split(self.config)
        console.say(str(parted))
        if self._links not in ([], links.dispatcher_options(self.config)):
            console.say_once("settings of links hold for an Orchestrator that begins with them")
        _tell_batch(dataloader, self.config, parted.batches_a_step())
        self._library.moved(self.model, optimizer)
        meshes = placing.meshes(parted, cluster.workers_there())
        parts = self._parts(dataloader, meshes)
        trainer = Trainer(
            config=self.config,
            split=parted,
            library=self._library,
            model=self.model,
            optimizer=self._optimizer(optimizer),
            loss_fn=loss_fn,
            meshes=meshes,
            metrics=Metrics(self.config, self._library),
        )
        position = self._position(trainer, resume)
        total = _steps(dataloader, parted.batches_a_step(), num_epochs)
        with self._prepared(trainer, parts), trainer.metrics.bar(total, position.step):
            trainer.run(dataloader, num_epochs, position)
        return trainer.metrics

    def close(self) -> None:
        """End the session and its workers; its tensors become invalid."""
        gt.disconnect()
        if self._dispatcher is not None:
            atexit.unregister(self._dispatcher.close)
            self._dispatcher.close()
            self._dispatcher = None

    def __enter__(self) -> Orchestrator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _parts(self, dataloader: Iterable[Any], meshes: Sequence[DeviceMesh]) -> list[Stage]:
        """The model's stages, with their parameters placed on the workers that compute them."""
        assert self.model is not None
        assert self._library is not None
        if self._placed is None:
            self._placed = [Stage(("",), 1.0)]
            if len(meshes) > 1:
                self._placed = self._measured(dataloader, len(meshes))
            placing.place(self.model, self._library, meshes, self._placed)
        return self._placed

    @contextlib.contextmanager
    def _prepared(self, trainer: Trainer, parts: Sequence[Stage]) -> Iterator[None]:
        """Inside the block, the model is called as configured; afterwards as before."""
        metrics, model = trainer.metrics, trainer.model
        metrics.profiles_memory = self._profiles_memory
        with contextlib.ExitStack() as ends:
            if self.config.gradient_checkpointing:
                ends.enter_context(recompute.recomputed(model, trainer.library))
            if self.config.log_act:
                metrics.boundaries = Boundaries(model, parts)
                ends.callback(metrics.boundaries.close)
            self._kept = None
            if self.config.allow_act_reuse:
                self._kept = ActivationCache(model, parts, self.config.act_cache_steps)
                ends.callback(self._kept.close)
            trainer.kept = self._kept
            ends.enter_context(placing.scopes(model, trainer.meshes, parts))
            yield

    def _measured(self, dataloader: Iterable[Any], count: int) -> list[Stage]:
        """Stages from the measured cost of a batch in each module; the generators' state is
        restored.
        """
        model, library = self.model, self._library
        assert model is not None
        assert library is not None
        state = checkpoint.random_state()
        micro = batches.micro_batches([next(iter(dataloader))], 1, 1)[0]
        checkpoint.set_random_state(state)
        inputs = micro.mapped(
            lambda leaf: library.enter(gt.as_tensor(leaf)), lambda leaf: leaf
        ).inputs
        costs = stages.measured(model, lambda: prediction(model, inputs))
        parts = stages.stages_of(model, costs, count)
        for number, stage in enumerate(parts):
            first, last = stage.paths[0], stage.paths[-1]
            console.say(
                f"stage {number}: {stage.share:.0%} of the measured cost, "
                f"{first if first == last else f'{first} to {last}'}"
            )
        return parts

    def _optimizer(self, optimizer: Value | None) -> Value:
        """The optimizer that was passed, that of an earlier call, or AdamW."""
        assert self._library is not None
        assert self.model is not None
        if optimizer is not None:
            self.optimizer = optimizer
        elif self.optimizer is None:
            self.optimizer = self._library.adamw(
                self.model.parameters(),
                lr=self.config.learning_rate,
                weight_decay=self.config.weight_decay,
            )
        return self.optimizer

    def _position(self, trainer: Trainer, resume: str | os.PathLike[str] | None) -> Position:
        """Position at which training begins: the start, or that of a checkpoint."""
        path = checkpoint.found(resume, Path(self.config.checkpoint_dir))
        if path is None:
            return Position()
        position = checkpoint.load(path, trainer.library, trainer.model, trainer.optimizer)
        console.say(f"resumed from {path}")
        return position


def _tell_batch(dataloader: object, config: DistributedConfig, batches_a_step: int) -> None:
    """Adopt the batch size of the loader if it differs from the configuration's, and report it."""
    size = getattr(dataloader, "batch_size", None)
    if size not in (None, config.batch_size):
        console.say(
            f"the loader's batches have {size} samples and batch_size is {config.batch_size}: "
            f"{size} holds"
        )
    samples = "" if size is None else f", {size * batches_a_step} samples"
    console.say(f"a step takes {batches_a_step} of the loader's batches{samples}")


def _steps(dataloader: object, batches_a_step: int, epochs: int) -> int | None:
    """Number of steps in a run, if the loader has a length."""
    try:
        return epochs * -(-len(dataloader) // batches_a_step)  # type: ignore[arg-type]
    except TypeError:  # a DataLoader over a stream raises only when asked
        return None
