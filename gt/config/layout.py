"""Configuration of one signal: SignalConfig and ShardConfig, checked on construction.

document.py reads them from a file; scopes.py combines them in nested scopes.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from gt.errors import ConfigError

DIMS_MAX = 8  # of a tensor
WORKERS_MAX, WORKER_INDEX_MAX = 512, 1 << 16
MESH_DIMS_MAX, MESH_NAME_MAX = 3, 64
BLOCKS_MAX = 1024

MESH_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHARD = re.compile(r"shard\(\s*(-?\d+)\s*\)")

Placements = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """Layout over workers for tensors created in a scope.

    Args:
        axis: Dimension to cut, of tensors created in the scope and of the weight `w` in a product
            `x @ w` there; negative values count from the end. Activations are never cut by it.
        workers: Indexes of the workers, in the order of the shards; by default those of the
            enclosing scope.
        replicated: Every worker holds the whole tensor.
        mesh: Names and sizes of the dimensions in which the workers are arranged.
        placements: `replicate` or `shard(d)` for each dimension of the mesh: a list in the mesh's
            order, or a mapping from names (dimensions that it omits are replicated).
        blocks: Number of equal parts of the cut dimension, each of which is cut (3 for a fused QKV,
            so that every worker has its heads of all three).

    Raises:
        ConfigError: A value is invalid, or two values contradict each other.
    """

    axis: int | None = None
    workers: Sequence[int] | None = None
    replicated: bool | None = None
    mesh: Mapping[str, int] | None = None
    placements: Placements | None = None
    blocks: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, CHECKS[field.name](value))
        _check_together(self)


@dataclass(frozen=True, kw_only=True)
class SignalConfig:
    """Configuration of a signal.

    Args:
        shard: Layout; without it the planner chooses.
        workers: Workers on which the scope runs; they are the workers of `shard`.
        backward: Name of the signal for the gradients.
        compile: Whether to compile the scope's work; None inherits from the enclosing scope.

    Raises:
        ConfigError: A value is invalid, or two values contradict each other.
    """

    shard: ShardConfig | None = None
    workers: Sequence[int] | None = None
    backward: str | None = None
    compile: bool | None = None

    def __post_init__(self) -> None:
        if self.shard is not None and not isinstance(self.shard, ShardConfig):
            raise ConfigError(
                f"shard is {self.shard!r}", "it is a ShardConfig(axis=…, workers=[…])", key="shard"
            )
        for name in ("workers", "backward", "compile"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, CHECKS[name](value))
        inner = self.shard.workers if self.shard else None
        if self.workers is not None and inner is not None and self.workers != inner:
            raise ConfigError(
                f"workers are {list(self.workers)} here and {list(inner)} under shard",
                "write them once",
                key="workers",
            )
        object.__setattr__(self, "workers", self.workers if inner is None else inner)
        if self.shard is not None and self.workers is not None:
            check_mesh_size(self.shard.mesh, len(self.workers))


def closest(word: str, known: Iterable[str]) -> str:
    """Remedy for an unknown word: the closest known one."""
    known = list(known)
    matches = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {matches[0]}?" if matches else f"known are {', '.join(known)}"


def placement(value: object) -> str:
    """A placement in its normal form, `replicate` or `shard(d)`."""
    if value == "replicate":
        return "replicate"
    match = SHARD.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(
            f"{value!r} is no placement", "write replicate or shard(0)", key="placements"
        )
    return f"shard({axis(int(match[1]), 'placements')})"


def cut_dim(word: str) -> int | None:
    """Dimension that a placement cuts."""
    match = SHARD.fullmatch(word)
    return int(match[1]) if match else None


def axis(value: object, key: str = "axis") -> int:
    """A dimension, checked to be possible for a tensor."""
    number = _integer(value, key, "the number of a dimension, such as 0, 1 or -1")
    if not -DIMS_MAX <= number < DIMS_MAX:
        raise ConfigError(
            f"{key} {number} is out of range",
            f"a tensor has at most {DIMS_MAX} dimensions: {-DIMS_MAX} to {DIMS_MAX - 1}",
            key=key,
        )
    return number


def _integer(value: object, key: str, remedy: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{key} is {value!r}, not a whole number", f"write {remedy}", key=key)
    return value


def _workers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple | range) or not value:
        raise ConfigError(
            f"workers is {value!r}", "write a list of indexes, such as [0, 1]", key="workers"
        )
    if len(value) > WORKERS_MAX:
        raise ConfigError(
            f"workers names {len(value)} of them", f"{WORKERS_MAX} is the limit", key="workers"
        )
    indices: list[int] = []
    for one in value:
        index = _integer(one, "workers", "indexes from 0 on")
        if not 0 <= index < WORKER_INDEX_MAX:
            raise ConfigError(f"there is no worker {index}", "count from 0", key="workers")
        if index in indices:
            raise ConfigError(f"worker {index} is named twice", "name it once", key="workers")
        indices.append(index)
    return tuple(indices)


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}", "write true or false", key=key)
    return value


def _mesh(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value or len(value) > MESH_DIMS_MAX:
        raise ConfigError(
            f"mesh is {value!r}",
            f"name 1 to {MESH_DIMS_MAX} dimensions with their sizes: {{dp: 2, tp: 2}}",
            key="mesh",
        )
    for name, size in value.items():
        if not isinstance(name, str) or not MESH_NAME.fullmatch(name) or len(name) > MESH_NAME_MAX:
            raise ConfigError(
                f"{name!r} is no name of a mesh dimension", "write one such as dp or tp", key="mesh"
            )
        if not 0 < _integer(size, "mesh", f"the size of {name}") <= WORKERS_MAX:
            raise ConfigError(
                f"the size of {name} is {size}", f"write one from 1 to {WORKERS_MAX}", key="mesh"
            )
    return dict(value)


def _placements(value: object) -> tuple[str, ...] | dict[str, str]:
    if isinstance(value, Mapping):
        return {str(name): placement(word) for name, word in value.items()}
    if not isinstance(value, list | tuple) or not value or len(value) > MESH_DIMS_MAX:
        raise ConfigError(
            f"placements is {value!r}",
            "write one for each dimension of the mesh, such as [replicate, shard(1)]",
            key="placements",
        )
    return tuple(placement(word) for word in value)


def _blocks(value: object) -> int:
    count = _integer(value, "blocks", "how many parts the dimension has, such as 3")
    if not 2 <= count <= BLOCKS_MAX:
        raise ConfigError(f"blocks is {count}", f"write 2 to {BLOCKS_MAX}", key="blocks")
    return count


def is_text(value: str) -> bool:
    """True if a string can be encoded: one with a lone surrogate cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def signal_name(value: object, key: str = "backward") -> str:
    """A signal's name, checked to fit in an instruction."""
    if not isinstance(value, str) or not is_text(value) or not 0 < len(value.encode()) <= 4096:
        raise ConfigError(
            f"{key} is {value!r}", "a signal's name is a string of 1 to 4096 bytes", key=key
        )
    return value


CHECKS: dict[str, Callable[[object], object]] = {
    "axis": axis,
    "workers": _workers,
    "replicated": lambda value: _boolean("replicated", value),
    "mesh": _mesh,
    "placements": _placements,
    "blocks": _blocks,
    "backward": signal_name,
    "compile": lambda value: _boolean("compile", value),
}


def words_of(placements: Placements) -> list[str]:
    """Placements as a list, whatever form they have."""
    return list(placements.values() if isinstance(placements, Mapping) else placements)


def _check_together(shard: ShardConfig) -> None:
    words = words_of(shard.placements or ())
    cuts = shard.axis is not None or any(cut_dim(word) is not None for word in words)
    if shard.replicated and cuts:
        raise ConfigError(
            "replicated contradicts the dimension to cut", "leave one out", key="replicated"
        )
    twice = [word for word in set(words) if words.count(word) > 1 and cut_dim(word) is not None]
    if twice:
        raise ConfigError(
            f"{twice[0]} is used for two dimensions of the mesh",
            "cut a dimension along one of them: a mesh of one dimension cuts it into more shards",
            key="placements",
        )
    if shard.placements is not None and shard.axis is not None:
        raise ConfigError(
            "placements contradicts axis", "leave one out: both say what is cut", key="placements"
        )
    if shard.blocks is not None and not cuts:
        raise ConfigError(
            "blocks without a dimension to cut", "write the axis that has the parts", key="blocks"
        )
    if shard.placements is not None and shard.mesh is not None:
        ordered(shard.placements, shard.mesh)
    if shard.workers is not None:
        check_mesh_size(shard.mesh, len(shard.workers))


def check_mesh_size(mesh: Mapping[str, int] | None, workers: int) -> None:
    """Check that a mesh has a place for each worker.

    Raises:
        ConfigError: The mesh has more or fewer places.
    """
    if not mesh or (size := math.prod(mesh.values())) == workers:
        return
    shape = " x ".join(f"{name} {dim}" for name, dim in mesh.items())
    there = "there is 1 worker" if workers == 1 else f"there are {workers} workers"
    raise ConfigError(
        f"the mesh {shape} has {size} place{'s' * (size != 1)} and {there}",
        "make the product of its sizes the number of workers",
        key="mesh",
    )


def ordered(placements: Placements, mesh: Mapping[str, int] | None) -> tuple[str, ...]:
    """One placement for each dimension of the mesh, in its order.

    Raises:
        ConfigError: The placements do not fit the mesh.
    """
    dims = list(mesh or {"workers": 0})
    if isinstance(placements, Mapping):
        for name in placements:
            if name not in dims:
                raise ConfigError(
                    f"the mesh has no dimension {name!r}", closest(name, dims), key="placements"
                )
        return tuple(placements.get(name, "replicate") for name in dims)
    if len(placements) != len(dims):
        raise ConfigError(
            f"{len(placements)} placements for the mesh dimensions {', '.join(dims)}",
            "write one for each",
            key="placements",
        )
    return tuple(placements)
