"""Rules by parameter path: layouts for the parameters of a model whose code has no signals.

What they are applied to is in gt/nn/placing.py. A pattern is a dotted path; `*` stands for one name
or a part of one, `**` for any number of names. It means a parameter, or all of a module's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gt.config.layout import ShardConfig, cut_dim, ordered
from gt.errors import ConfigError

ROOT = "model"  # what patterns may call the module itself
STYLES = ("colpar", "rowpar", "vocab", "replicate")
TENSOR_PARALLEL = (
    "tp"  # the mesh dimension that a style cuts along, where there is one of this name
)

# For a weight in the orientation [in, out]: the dimension that a style cuts.
WEIGHT_DIM = {"colpar": 1, "rowpar": 0, "vocab": 0}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pattern and its layout.

    Args:
        pattern: the path, without the root's name or with `model.` before it.
        style: `colpar`, `rowpar`, `vocab` or `replicate`; else `shard` says it.
        shard: workers, mesh, placements (of the parameter as it is stored) and their blocks.
        blocks: beside a style: what it cuts has so many equal parts, each of which is cut.
        file: where it is written, or the call that was made; with line and column of a file.

    Raises:
        ConfigError: it says nothing, or two things.
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
        """`file:line:column`, by which the same rule is known in another process."""
        return f"{self.file}:{self.line}:{self.column}"

    def matches(self, path: str) -> bool:
        """True if the pattern matches the parameter's path, or that of the module that it belongs
        to.
        """
        names = path.split(".")
        return any(
            _matches(self.pattern.split("."), [*before, *names[:length]])
            for length in (len(names), len(names) - 1)
            for before in ((), (ROOT,))
        )

    def layout_of(self, rank: int, *, weight: str, name: str) -> ShardConfig:
        """The layout of one parameter; one without dimensions is whole under every rule.

        Args:
            rank: how many dimensions it has.
            weight: how it is stored: `[in, out]`, `[out, in]`, or `table` ([rows, width]).
            name: what it is called in an error.

        Raises:
            ConfigError: a dimension to cut that it does not have.
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
        """Gives a mistake that is found within the place of this rule."""
        try:
            yield
        except ConfigError as error:
            raise self.mistake(f"{self.pattern}: {error.text}", error.remedy) from None

    def mistake(self, text: str, remedy: str) -> ConfigError:
        """A mistake with the place of this rule."""
        return ConfigError(text, remedy, file=self.file, line=self.line, column=self.column)

    def _styled_dim(self, rank: int, weight: str) -> int | None:
        """The dimension that the style cuts, of the parameter as it is stored."""
        if self.style == "replicate" or rank == 0:
            return None
        if rank == 1:  # a bias: of the outputs
            return None if self.style == "rowpar" else 0
        if self.style == "vocab" or weight == "table":
            return rank - 1 if weight == "table" and self.style == "colpar" else 0
        dim = WEIGHT_DIM[str(self.style)]
        # of more dimensions the last two are the matrix
        return rank - 2 + (1 - dim if weight == "[out, in]" else dim)


def rule_for(path: str, rules: Sequence[Rule]) -> Rule | None:
    """The rule that holds for a parameter: of those that match it the last."""
    return next((rule for rule in reversed(rules) if rule.matches(path)), None)


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """True if the pattern matches all of `names`, one after the other."""
    reached = {0}  # how many names the pattern so far may stand for
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
