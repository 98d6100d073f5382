"""Order in which files of tests start where several run side by side (`-n 2 --dist loadfile`).

xdist hands out whole files, those with most tests first, so that a file with a few long tests ends
last, alone on one of two workers. Here the longest files start first, and a file whose tests share
nothing but fixtures of their own is handed out in several shares.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from worker_forks import has_forks

ROOT = Path(__file__).resolve().parent.parent.parent
OP_DB_SHARES = 4
_WORKERS = re.compile(r"\[(\d+ workers)\b")


def _by_workers(identifier: str) -> str:
    """Number of workers: its session starts once, and its last test looks back at all others."""
    match = _WORKERS.search(identifier)
    return match[1] if match else ""


def _by_digest(identifier: str) -> str:
    return str(zlib.crc32(identifier.encode()) % OP_DB_SHARES)


# Share of a file that a test belongs to, by its identifier.
SHARES: dict[str, Callable[[str], str]] = {
    "tests/layouts/test_placements.py": _by_workers,
    "tests/operators/test_op_db.py": _by_digest,
}
# Files with long tests, the longest first; all others follow by their number of tests.
LONGEST = (
    "tests/operators/test_op_db.py",
    "tests/layouts/test_placements.py",
    "tests/kernels/test_aten_bits.py",
    "tests/cuda/test_cuda_kernels.py",
    "tests/cuda/test_cuda_operators.py",
    "tests/cuda/test_emulator.py",
    "tests/cuda/test_device_collectives.py",
    "tests/operators/test_new_op.py",
    "tests/surface/test_types.py",
    "tests/surface/test_documentation.py",
    "tests/kernels/test_large_products.py",
    "tests/layouts/test_buckets.py",
    "tests/operators/test_long_lists.py",
    "tests/front/test_run.py",
    "tests/front/test_zoo.py",
    "tests/cluster/test_cancel.py",
    "tests/cluster/test_compression.py",
    "tests/tools/test_demo.py",
    "tests/cluster/test_replaced_workers.py",
    "tests/layouts/test_gpt_layouts.py",
    "tests/layouts/test_memory_layouts.py",
    "tests/operators/test_aten_fuzz.py",
    "tests/kernels/test_bits.py",
    "tests/kernels/test_update_groups.py",
    "tests/kernels/test_aten_generic.py",
    "tests/nn/test_data_workers.py",
    "tests/nn/test_autocast_ops.py",
    "tests/front/test_front_compiled.py",
    "tests/cluster/test_light_dynamo.py",
)


def file_of(identifier: str) -> str:
    """Path of the file that holds a test."""
    return identifier.partition("::")[0]


def scope(identifier: str) -> str:
    """Tests with one scope run in one process, one after another."""
    file = file_of(identifier)
    return f"{file} {SHARES[file](identifier)}" if file in SHARES else file


def in_order(identifiers: Sequence[str]) -> list[str]:
    """Scopes in the order in which they are handed out."""
    counts: dict[str, int] = {}
    for identifier in identifiers:
        counts[scope(identifier)] = counts.get(scope(identifier), 0) + 1
    places = {file: place for place, file in enumerate(LONGEST)}

    def order(name: str) -> tuple[int, bool, int]:
        file = name.partition(" ")[0]
        # Files whose workers are forks stand together: a session ends where others follow.
        return places.get(file, len(LONGEST)), has_forks(file), -counts[name]

    return sorted(counts, key=order)


class Places(list[str]):
    """Identifiers of all tests, with each one's place found at once: there are over 30,000."""

    def __init__(self, identifiers: Sequence[str]) -> None:
        super().__init__(identifiers)
        self._places = {identifier: place for place, identifier in enumerate(identifiers)}

    def index(self, identifier: str) -> int:
        return self._places[identifier]


def scheduler(config: pytest.Config, log: object) -> object:
    """A scheduler of xdist that hands out scopes in this order."""
    from xdist.scheduler import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

        def add_node_collection(self, node, collection):
            super().add_node_collection(node, collection)
            self.registered_collections[node] = Places(collection)

        def mark_test_complete(self, node, item_index, duration=0):
            nodeid = self.registered_collections[node][item_index]
            super().mark_test_complete(node, item_index, duration)
            # xdist counts what is left after each test: completed ones need not be counted again.
            del self.assigned_work[node][scope(nodeid)][nodeid]

    return LongestFirst(config, log)
