"""Sessions whose workers compute as PyTorch does in the tests' own process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from spread_session import workers


@contextmanager
def torch_workers(count: int, **environment: str) -> Iterator[None]:
    """So many workers on the device and with the backend of the oracle, which has one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "CUDA_VISIBLE_DEVICES": "",
            "GT_BACKEND": "pytorch",
            **environment,
        }.items():
            patch.setenv(name, value)
        with workers(count):
            yield
    torch.set_num_threads(threads)
