"""A YAML file of layouts, read with the place of every mistake. What it means is in scopes.py.

The grammar: `NAME: {shard: {axis, workers, replicated, mesh, placements, blocks}, workers, mesh,
placements, blocks, backward, compile}`; and `parameters:`, rules by path (rules.py).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gt.config.layout import CHECKS, ShardConfig, SignalConfig, closest, placement, signal_name
from gt.config.rules import STYLES, Rule
from gt.errors import ConfigError

if TYPE_CHECKING:
    import yaml

FILE_BYTES_MAX = 1 << 20  # a thousand times what people write
MERGE_DEPTH_MAX, MERGES_MAX = (
    8,
    10_000,
)  # a mapping may be merged into itself, or ten into ten into ten
PARAMETERS = "parameters"
SHARD_KEYS = tuple(field.name for field in fields(ShardConfig))
SHORTHANDS = ("mesh", "placements", "blocks")  # of shard's, written beside `workers`
ENTRY_KEYS = ("shard", "workers", "backward", "compile", *SHORTHANDS)
RULE_KEYS = ("style", "workers", "mesh", "placements", "blocks")

INTEGER = re.compile(r"[+-]?\d+")
TAB = "found character '\\t'"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a file or a program says of one signal, and where."""

    config: SignalConfig
    file: str
    marks: Mapping[str, tuple[int, int]]
    """Line and column of each key; of the name under the empty string."""

    def mistake(self, error: ConfigError) -> ConfigError:
        """The same mistake with the place of its key."""
        line, column = self.marks.get(error.key or "", self.marks.get("", (None, None)))
        return ConfigError(
            error.text, error.remedy, key=error.key, file=self.file, line=line, column=column
        )


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a file says, and every mistake in it."""

    entries: Mapping[str, Entry]
    rules: tuple[Rule, ...]
    mistakes: tuple[ConfigError, ...]


def load(path: str) -> Document:
    """What a file says.

    Raises:
        ConfigError: the first mistake in it.
    """
    document = read(path)
    if document.mistakes:
        raise document.mistakes[0]
    return document


def read(path: str) -> Document:
    """What a file says, as far as it can be understood, and its mistakes in order.

    Raises:
        ConfigError: there is no such file, or it is not text.
    """
    try:
        content = Path(path).read_bytes()
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(
                f"{len(content)} bytes", f"the limit of a file is {FILE_BYTES_MAX}", file=path
            )
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{error.strerror}", "check the path and the working directory", file=path
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 ({error.reason})", "save it as UTF-8", file=path) from error
    return parse(text, path)


def parse(text: str, file: str) -> Document:
    """What a text says, as far as it can be understood, and its mistakes in order.

    Args:
        text: YAML.
        file: what mistakes call it.
    """
    return _Reader(file).document(text)


class _Reader:
    """One pass over the nodes of a file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[ConfigError] = []
        self._merges = 0

    def document(self, text: str) -> Document:
        import yaml

        entries: dict[str, Entry] = {}
        rules: list[Rule] = []
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            self._unreadable(error)
            root = None
        except (yaml.YAMLError, RecursionError) as error:
            self.mistakes.append(
                ConfigError(f"this is no YAML: {error}", "mend it", file=self.file)
            )
            root = None
        if root is not None:
            for key, value in self._pairs(root, "names of signals with what they mean"):
                if key.value == PARAMETERS:
                    rules += self._rules(value)
                elif isinstance(value, yaml.MappingNode) or _is_nothing(value):
                    with self._at(key):
                        entries[signal_name(key.value, "the name")] = self._entry(key, value)
                else:
                    rules += self._rule(key, value)
        self.mistakes.sort(key=lambda error: (error.line or 0, error.column or 0))
        return Document(entries=entries, rules=tuple(rules), mistakes=tuple(self.mistakes))

    # ---- entries ----

    def _entry(self, name: yaml.Node, node: yaml.Node) -> Entry:
        marks, before = {"": _place(name)}, len(self.mistakes)
        values: dict[str, object] = {}
        shard: dict[str, object] = {}
        for key, value in self._pairs(node, "what the signal means", ENTRY_KEYS):
            marks[key.value] = _place(key)
            if key.value == "shard":
                shard |= self._shard(value, marks)
            elif key.value in SHORTHANDS:
                if key.value in shard:
                    self._mistake(key, f"{key.value} stands here and under shard", "write it once")
                shard.update(self._value(key.value, value))
            else:
                values.update(self._value(key.value, value))
        made = SignalConfig()
        if len(self.mistakes) == before:  # of half an entry nothing else can be said
            with self._at(name, marks):
                if shard:
                    values["shard"] = _made(ShardConfig, shard)
                made = _made(SignalConfig, values)
        return Entry(config=made, file=self.file, marks=marks)

    def _shard(self, node: yaml.Node, marks: dict[str, tuple[int, int]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in self._pairs(node, "axis, workers, …", SHARD_KEYS):
            marks.setdefault(key.value, _place(key))
            found.update(self._value(key.value, value))
        return found

    def _value(self, key: str, node: yaml.Node) -> dict[str, object]:
        """The checked value of a key; nothing where it is wrong."""
        found: dict[str, object] = {}
        with self._at(node):
            given = self._names(node) if key == "backward" else self._plain(node)
            found[key] = CHECKS[key](given)
        return found

    # ---- rules by path ----

    def _rules(self, node: yaml.Node) -> list[Rule]:
        pairs = self._pairs(node, "paths of parameters with their layouts")
        return [rule for key, value in pairs for rule in self._rule(key, value)]

    def _rule(self, pattern: yaml.Node, node: yaml.Node) -> list[Rule]:
        import yaml

        style: object = None
        shard: dict[str, object] = {}
        if isinstance(node, yaml.MappingNode):
            for key, value in self._pairs(node, "a layout", RULE_KEYS):
                if key.value == "style":
                    style = self._plain(value)
                else:
                    shard.update(self._value(key.value, value))
        elif isinstance(node, yaml.SequenceNode):
            shard.update(self._value("placements", node))
        else:
            style = self._plain(node)
        made: list[Rule] = []
        with self._at(node, {"pattern": _place(pattern)}):
            made.append(self._made_rule(pattern, style, shard))
        return made

    def _made_rule(self, pattern: yaml.Node, style: object, shard: dict[str, object]) -> Rule:
        if isinstance(style, str) and style not in STYLES and style.startswith("shard"):
            shard["placements"] = (placement(style),)
            style = None
        if style is not None and style not in STYLES:
            raise ConfigError(f"{style!r} is no layout", closest(str(style), [*STYLES, "shard(0)"]))
        line, column = _place(pattern)
        return Rule(
            pattern=pattern.value,
            style=style if isinstance(style, str) else None,
            shard=_made(ShardConfig, shard),
            file=self.file,
            line=line,
            column=column,
        )

    # ---- nodes ----

    def _pairs(
        self, node: yaml.Node, wanted: str, known: tuple[str, ...] | None = None, depth: int = 0
    ) -> list[tuple[yaml.Node, yaml.Node]]:
        """Keys and values of a mapping, `<<` merged; unknown and repeated keys are mistakes."""
        import yaml

        if _is_nothing(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self._mistake(node, f"{_shown(node)} stands where {wanted} belong", "write key: value")
            return []
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif not isinstance(key, yaml.ScalarNode):
                self._mistake(key, "a key that is not a word", "write key: value")
            elif key.value in found:
                self._mistake(key, f"{key.value!r} stands twice", "join the two")
            elif known is not None and key.value not in known:
                self._mistake(key, f"unknown key {key.value!r}", closest(key.value, known))
            else:
                found[key.value] = (key, value)
        for key, value in self._merged(node, merged, wanted, known, depth):
            found.setdefault(key.value, (key, value))
        return list(found.values())

    def _merged(
        self,
        node: yaml.Node,
        others: list[yaml.Node],
        wanted: str,
        known: tuple[str, ...] | None,
        depth: int,
    ) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """What a mapping takes from others by `<<`."""
        self._merges += len(others)
        if others and (depth == MERGE_DEPTH_MAX or self._merges > MERGES_MAX):
            self._mistake(node, "too many `<<` in each other", "write the keys out")
            return
        for other in others:
            yield from self._pairs(other, wanted, known, depth + 1)

    def _names(self, node: yaml.Node) -> object:
        """A scalar as it is written: names of signals are strings, also `on`, `no` and `1`."""
        import yaml

        return node.value if isinstance(node, yaml.ScalarNode) else self._plain(node)

    def _plain(self, node: yaml.Node, depth: int = 0) -> object:
        """The value of a node: boolean, whole number, string, or a list or mapping of these."""
        import yaml

        if depth > 2:
            raise ConfigError("a list or mapping too deep", "write a list of plain values")
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {
                key.value: self._plain(value, depth + 1) for key, value in self._pairs(node, "it")
            }
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            raise ConfigError("a key without a value", "write one, or leave the key out")
        if kind == "bool":
            return node.value.lower() in ("true", "yes", "on")
        if kind == "int" and INTEGER.fullmatch(node.value) and len(node.value) < 20:
            return int(node.value)
        return node.value

    # ---- mistakes ----

    def _mistake(self, node: yaml.Node, text: str, remedy: str) -> None:
        line, column = _place(node)
        self.mistakes.append(ConfigError(text, remedy, file=self.file, line=line, column=column))

    @contextlib.contextmanager
    def _at(
        self, node: yaml.Node, marks: Mapping[str, tuple[int, int]] | None = None
    ) -> Iterator[None]:
        """Writes a mistake down with the place of its key, else of the node, and goes on."""
        try:
            yield
        except ConfigError as error:
            line, column = (marks or {}).get(error.key or "", _place(node))
            self.mistakes.append(
                ConfigError(
                    error.text,
                    error.remedy,
                    key=error.key,
                    file=self.file,
                    line=line,
                    column=column,
                )
            )

    def _unreadable(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or str(error)
        tab = TAB in problem
        self.mistakes.append(
            ConfigError(
                "a tab" if tab else problem,
                "YAML is indented with spaces" if tab else "mend the YAML around here",
                file=self.file,
                line=mark.line + 1 if mark else None,
                column=mark.column + 1 if mark else None,
            )
        )


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_nothing(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _shown(node: yaml.Node) -> str:
    return repr(node.value) if isinstance(node.value, str) else "a list"


def _made(made: Callable[..., T], values: Mapping[str, object]) -> T:
    """A configuration from values that have been checked one by one."""
    return made(**values)
