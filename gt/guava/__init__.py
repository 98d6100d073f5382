"""Guava: a trainer for PyTorch models on GT's workers, on GT's public names alone.

Read it in this order: config.py (settings), split.py (division of workers), orchestrator.py (a run
from start to end), training.py (the loop), then their parts: library.py (GT's modules or
PyTorch's), batches.py, placing.py with tensor_rules.py and stages.py (layouts of parameters),
checkpoint.py, metrics.py, cluster.py (processes) and workers/.
"""

from gt.guava.config import DistributedConfig
from gt.guava.orchestrator import Orchestrator
from gt.guava.workers.worker import NetworkWorker

__all__ = ["DistributedConfig", "NetworkWorker", "Orchestrator"]


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
