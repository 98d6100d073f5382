"""Datasets, samplers and loaders, with torch.utils.data's names, arguments and errors.

Nothing here imports torch; draws are GT's own, so the same seed gives other orders than PyTorch's.
"""

from gt import documentation as _documentation
from gt.compat import misses
from gt.utils.data.collate import default_collate, default_convert
from gt.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from gt.utils.data.distributed import DistributedSampler
from gt.utils.data.loader import DataLoader
from gt.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from gt.utils.data.worker_process import get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]


_documentation.attach(__name__, globals())
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the package's own use are left out."""
    return __all__
