"""DistributedConfig: how a model is trained, on how many workers, and how it is split.

split.py derives the division over workers from it.
"""

from __future__ import annotations

import dataclasses
import math

from gt.config import environment
from gt.guava import console, settings
from gt.guava.settings import (
    AMOUNT,
    COUNT,
    LIMIT,
    NUMBER,
    PORT,
    SECONDS,
    SHARE,
    SWITCHED,
    TEXT,
    TRIES,
    setting,
)

__all__ = ["DistributedConfig"]


@dataclasses.dataclass(kw_only=True)
class DistributedConfig:
    """The settings of a run. All are optional, and may be changed until training starts.

    An argument takes precedence over its environment variable, which takes precedence over the
    default.

    Args:
        vocab_size: for your model, as are the next six: nothing here reads them.
        d_model: width.
        n_heads: heads of attention.
        n_layers: blocks.
        d_ff: width inside a block.
        max_seq_len: tokens.
        dropout: share of values that are zeroed.
        batch_size: samples of a loader's batch; a loader that has another wins, and is named.
        learning_rate: for the default optimizer, AdamW.
        weight_decay: for the default optimizer.
        max_grad_norm: norm to which all gradients together are clipped; None for no clipping.
        use_amp: compute in bfloat16 where that is safe; weights stay in float32.
        gradient_checkpointing: recompute the activations of blocks in the backward pass.
        num_workers: number of workers on all machines; 0 is one worker on the CPU.
        master_ip: address on which the orchestrator listens.
        master_port: port on which it listens; 0 takes a free one.
        data_parallel: cut batches over workers (DATA_PARALLEL).
        model_parallel: give each worker some of the layers (MODEL_PARALLEL).
        pipeline_parallel: cut a step into micro-batches, so that stages work at the same time;
            also splits layers as `model_parallel` does (PIPELINE_PARALLEL).
        tensor_parallel: cut matrices over `tensor_parallel_size` workers (TENSOR_PARALLEL).
        micro_batches: number per step, under `pipeline_parallel` (MICRO_BATCHES).
        tensor_parallel_size: workers that share a matrix (TENSOR_PARALLEL_SIZE).
        checkpoint_dir: the folder of checkpoints and metrics.
        save_interval: steps between two checkpoints; 0 for none.
        compact_log: one line for all workers, else one for each (COMPACT_LOG).
        log_step_every: steps between two lines (LOG_STEP_EVERY).
        log_act: also log shape, mean and largest value of each stage's output (LOG_ACT).
        activation_timeout: seconds for which the host of another worker may leave bytes of
            activations or gradients unacknowledged, then that worker is lost; 0 for no limit
            (ACT_TIMEOUT_SEC).
        ack_timeout: seconds within which a broken link to the orchestrator is taken up again, then
            its worker is lost; 0 for no limit (ACK_TIMEOUT_SEC).
        max_resends: probes of a connection without an answer, then it is made anew (RESENDS_MAX).
        resend_probe_interval: seconds of silence before each probe; 0 for none (RESEND_PROBE_SEC).
        allow_act_reuse: keep the stages' outputs beyond their step (ALLOW_ACT_REUSE).
        act_cache_steps: number of steps for which they are kept (ACT_CACHE_STEPS).

    Raises:
        ConfigError: a value is invalid; the message names the field or its variable.
    """

    vocab_size: int = setting(COUNT, 50257)
    d_model: int = setting(COUNT, 768)
    n_heads: int = setting(COUNT, 12)
    n_layers: int = setting(COUNT, 12)
    d_ff: int = setting(COUNT, 3072)
    max_seq_len: int = setting(COUNT, 1024)
    dropout: float = setting(SHARE, 0.1)

    batch_size: int = setting(COUNT, 16)
    learning_rate: float = setting(AMOUNT, 3e-4)
    weight_decay: float = setting(AMOUNT, 0.01)
    max_grad_norm: float | None = setting(LIMIT, 1.0)
    use_amp: bool = setting(SWITCHED, False)
    gradient_checkpointing: bool = setting(SWITCHED, False)

    num_workers: int = setting(NUMBER, 4)
    master_ip: str = setting(TEXT, "localhost")
    master_port: int = setting(PORT, 29500)

    data_parallel: bool = setting(SWITCHED, True, "DATA_PARALLEL")
    model_parallel: bool = setting(SWITCHED, False, "MODEL_PARALLEL")
    pipeline_parallel: bool = setting(SWITCHED, False, "PIPELINE_PARALLEL")
    tensor_parallel: bool = setting(SWITCHED, False, "TENSOR_PARALLEL")
    micro_batches: int = setting(COUNT, 4, "MICRO_BATCHES")
    tensor_parallel_size: int = setting(COUNT, 2, "TENSOR_PARALLEL_SIZE")

    checkpoint_dir: str = setting(TEXT, "./checkpoints")
    save_interval: int = setting(NUMBER, 1000)

    compact_log: bool = setting(SWITCHED, True, "COMPACT_LOG")
    log_step_every: int = setting(COUNT, 100, "LOG_STEP_EVERY")
    log_act: bool = setting(SWITCHED, False, "LOG_ACT")

    activation_timeout: float = setting(SECONDS, 60.0, "ACT_TIMEOUT_SEC")
    ack_timeout: float = setting(SECONDS, 30.0, "ACK_TIMEOUT_SEC")
    max_resends: int = setting(TRIES, 3, "RESENDS_MAX")
    resend_probe_interval: float = setting(SECONDS, 5.0, "RESEND_PROBE_SEC")
    allow_act_reuse: bool = setting(SWITCHED, False, "ALLOW_ACT_REUSE")
    act_cache_steps: int = setting(COUNT, 256, "ACT_CACHE_STEPS")

    @classmethod
    def from_env(cls) -> DistributedConfig:
        """Settings from the environment, including MASTER_IP and MASTER_PORT.

        Raises:
            ConfigError: a variable is invalid.
        """
        return cls(
            master_ip=environment.read(settings.MASTER_IP),
            master_port=environment.read(settings.MASTER_PORT),
        )

    def adapt_to_gpus(self, count: int) -> None:
        """Use one worker per GPU, or one on the CPU if there is none; print the changes.

        The tensor-parallel group shrinks to the largest size that divides the workers.

        Args:
            count: number of GPUs.
        """
        workers = max(1, int(count))
        changes = [("num_workers", self.num_workers, workers)]
        if self.tensor_parallel and workers % self.tensor_parallel_size:
            group = math.gcd(workers, self.tensor_parallel_size)
            changes.append(("tensor_parallel_size", self.tensor_parallel_size, group))
        why = "" if count else " (no GPU: one worker on the CPU)"
        for name, before, now in changes:
            setattr(self, name, now)
            if before != now:
                console.say(f"{name} {before} -> {now}{why}")

    def __setattr__(self, name: str, value: object) -> None:
        """Checks a field's new value on assignment; refuses unknown names."""
        field = _fields().get(name)
        if field is None:
            raise AttributeError(f"DistributedConfig has no field {name!r}")
        object.__setattr__(self, name, settings.check(field, value))
        if name == "num_workers" and value == 0 and "act_cache_steps" in self.__dict__:
            self.adapt_to_gpus(0)

    def __post_init__(self) -> None:
        if self.num_workers == 0:
            self.adapt_to_gpus(0)


def _fields() -> dict[str, dataclasses.Field[object]]:
    return {field.name: field for field in dataclasses.fields(DistributedConfig)}
