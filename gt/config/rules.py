"""Rules by parameter path: layouts for the parameters of a model whose code has no signals.

gt/nn/placing.py applies them. A pattern is a dotted path; `*` stands for one name or a part of one,
`**` for any number of names. It matches a parameter, or all parameters of a module.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gt.config.layout import ShardConfig, cut_dim, ordered
from gt.errors import ConfigError

ROOT = "model"  # name of the model itself in patterns
STYLES = ("colpar", "rowpar", "vocab", "replicate")
TENSOR_PARALLEL = "tp"  # the mesh dimension that a style cuts along, if one has this name

# Dimension that a style cuts, for a weight in the orientation [in, out].
WEIGHT_DIM = {"colpar": 1, "rowpar": 0, "vocab": 0}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pattern and its layout.

    Args:
        pattern: Path, with or without the leading `model.`.
        style: `colpar`, `rowpar`, `vocab` or `replicate`; without it, `shard` gives the layout.
        shard: Workers, mesh, placements (of the parameter as it is stored) and their blocks.
        blocks: With a style: number of equal parts of the cut dimension, each of which is cut.
        file: File of the rule (with line and column), or the call that made it.

    Raises:
        ConfigError: The rule gives no layout, or two.
    """

    pattern: str
    style: str | None
    shard: ShardConfig
    file: str
    blocks: int | None = None
    line: int | None = None
    column: int | None = None

    def __post_init__(self) -> None:
        if not self.pattern or not all(self.pattern.split(".")):
            raise ConfigError(
                f"{self.pattern!r} is no path", "write one such as layers.*.mlp.up", key="pattern"
            )
        if self.style is not None and self.shard.placements is not None:
            raise ConfigError(
                f"placements contradicts the style {self.style}", "leave one out", key="placements"
            )
        if self.style == "replicate" and self.blocks is not None:
            raise ConfigError(
                "blocks without a dimension to cut", "write colpar or rowpar", key="blocks"
            )
        if self.style is None and self.shard.placements is None and self.shard.workers is None:
            raise ConfigError(
                f"{self.pattern!r} has no layout", f"write one of {', '.join(STYLES)}, or shard(0)"
            )

    @property
    def place(self) -> str:
        """Position `file:line:column`, by which another process identifies the same rule."""
        return f"{self.file}:{self.line}:{self.column}"

    def matches(self, path: str) -> bool:
        """True if the pattern matches the parameter's path, or that of its module."""
        names = path.split(".")
        return any(
            _matches(self.pattern.split("."), [*before, *names[:length]])
            for length in (len(names), len(names) - 1)
            for before in ((), (ROOT,))
        )

    def layout_of(self, rank: int, *, weight: str, name: str) -> ShardConfig:
        """Layout of one parameter; a parameter without dimensions is whole under every rule.

        Args:
            rank: Number of the parameter's dimensions.
            weight: Orientation in which it is stored: `[in, out]`, `[out, in]`, or `table` ([rows,
                width]).
            name: Name of the parameter in errors.

        Raises:
            ConfigError: The parameter lacks the dimension to cut.
        """
        shard = self.shard
        if self.style is not None:
            dim = self._styled_dim(rank, weight)
            placement = "replicate" if dim is None else f"shard({dim})"
            dims = list(shard.mesh or ("workers",))
            along = TENSOR_PARALLEL if TENSOR_PARALLEL in dims else dims[-1]
            placements = tuple(placement if one == along else "replicate" for one in dims)
        else:
            placements = ordered(
                shard.placements or ["replicate"] * len(shard.mesh or "1"), shard.mesh
            )
        if not rank:
            placements = ("replicate",) * len(placements)
        cuts = [dim for dim in map(cut_dim, placements) if dim is not None]
        for dim in cuts:
            if not -rank <= dim < rank:
                raise self.mistake(
                    f"{name} has {rank} dimensions and no dimension {dim}",
                    f"write shard({-rank}) to shard({rank - 1})",
                )
        counted = [None if (dim := cut_dim(word)) is None else dim % rank for word in placements]
        return ShardConfig(
            workers=shard.workers,
            mesh=shard.mesh,
            placements=["replicate" if dim is None else f"shard({dim})" for dim in counted],
            blocks=(self.blocks or shard.blocks) if cuts else None,
        )

    @contextmanager
    def at_fault(self) -> Iterator[None]:
        """Adds this rule's position to a mistake that is raised inside."""
        try:
            yield
        except ConfigError as error:
            raise self.mistake(f"{self.pattern}: {error.text}", error.remedy) from None

    def mistake(self, text: str, remedy: str) -> ConfigError:
        """A mistake with this rule's position."""
        return ConfigError(text, remedy, file=self.file, line=self.line, column=self.column)

    def _styled_dim(self, rank: int, weight: str) -> int | None:
        """Dimension of the parameter, as stored, that the style cuts."""
        if self.style == "replicate" or rank == 0:
            return None
        if rank == 1:  # a bias over the outputs
            return None if self.style == "rowpar" else 0
        if self.style == "vocab" or weight == "table":
            return rank - 1 if weight == "table" and self.style == "colpar" else 0
        dim = WEIGHT_DIM[str(self.style)]
        # With more dimensions, the last two are the matrix.
        return rank - 2 + (1 - dim if weight == "[out, in]" else dim)


def rule_for(path: str, rules: Sequence[Rule]) -> Rule | None:
    """Rule for a parameter: the last one that matches it."""
    return next((rule for rule in reversed(rules) if rule.matches(path)), None)


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """True if the pattern matches the whole sequence `names`."""
    reached = {0}  # the numbers of names that the pattern so far may match
    for word in pattern:
        if word == "**":
            reached = set(range(min(reached), len(names) + 1)) if reached else set()
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(names) and fnmatch.fnmatchcase(names[place], word)
            }
    return len(names) in reached
