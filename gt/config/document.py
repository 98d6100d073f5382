"""Parser of YAML layout files that reports the position of each mistake; scopes.py interprets them.

The grammar: `NAME: {shard: {axis, workers, replicated, mesh, placements, blocks}, workers, mesh,
placements, blocks, backward, compile}`; `parameters:`, rules by path (rules.py); and `schedule:`,
the name of a pipeline schedule.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from gt.config.layout import (
    CHECKS,
    ShardConfig,
    SignalConfig,
    closest,
    is_text,
    placement,
    signal_name,
)
from gt.config.rules import STYLES, Rule
from gt.errors import ConfigError

if TYPE_CHECKING:
    import yaml

FILE_BYTES_MAX = 1 << 20  # A thousand times the size of a typical file.
DEPTH_SHOWN = 100  # Nesting of lists and mappings; PyYAML gives up at a few hundred.
INTEGER_DIGITS_MAX = 18
MERGE_DEPTH_MAX, MERGES_MAX = (
    8,
    10_000,
)  # a mapping may merge itself, or ten mappings of ten of ten
PARAMETERS = "parameters"
SCHEDULE = "schedule"
SHARD_KEYS = tuple(field.name for field in fields(ShardConfig))
SHORTHANDS = ("mesh", "placements", "blocks")  # keys of `shard` that may stand beside `workers`
ENTRY_KEYS = ("shard", "workers", "backward", "compile", *SHORTHANDS)
RULE_KEYS = ("style", "workers", "mesh", "placements", "blocks")

INTEGER = re.compile(r"[+-]?\d+")
YAML_TAG = "tag:yaml.org,2002:"
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
TAB = "found character '\\t'"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Configuration of one signal, with the positions of its keys in the file or program."""

    config: SignalConfig
    file: str
    marks: Mapping[str, tuple[int, int]]
    """Line and column of each key; the empty string stands for the signal's name."""

    def mistake(self, error: ConfigError) -> ConfigError:
        """A copy of the error with the position of its key in the file."""
        line, column = self.marks.get(error.key or "", self.marks.get("", (None, None)))
        return ConfigError(
            error.text, error.remedy, key=error.key, file=self.file, line=line, column=column
        )


@dataclass(frozen=True, kw_only=True)
class Document:
    """Content of a configuration file, and all its mistakes."""

    entries: Mapping[str, Entry]
    rules: tuple[Rule, ...]
    mistakes: tuple[ConfigError, ...]
    schedule: str | None = None
    """Name of a pipeline schedule."""


def load(path: str) -> Document:
    """Read a file, and raise its first mistake.

    Raises:
        ConfigError: The file has a mistake or cannot be read.
    """
    document = read(path)
    if document.mistakes:
        raise document.mistakes[0]
    return document


def read(path: str) -> Document:
    """Read a file: its valid entries, and its mistakes in order.

    Raises:
        ConfigError: The file does not exist.
    """
    try:
        with Path(path).open("rb") as file:
            return read_from(file, path)
    except OSError as error:
        raise ConfigError(
            f"{error.strerror}", "check the path and the working directory", file=path
        ) from error


def read_from(stream: BinaryIO, file: str) -> Document:
    """Read a stream: its valid entries, and its mistakes in order.

    Args:
        stream: Read to its end, or to one byte beyond the largest size of a file.
        file: Name of the stream in error messages.
    """
    content = stream.read(FILE_BYTES_MAX + 1)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place_of(content[: error.start].decode(errors="replace"))
        said = f"the byte 0x{content[error.start]:02x} is not UTF-8"
        mistake = ConfigError(said, "save it as UTF-8", file=file, line=line, column=column)
        return Document(entries={}, rules=(), mistakes=(mistake,))
    if len(content) > FILE_BYTES_MAX:
        line, column = _place_of(text)
        said = f"more than {FILE_BYTES_MAX} bytes"
        mistake = ConfigError(
            said, "take out what is no layout", file=file, line=line, column=column
        )
        return Document(entries={}, rules=(), mistakes=(mistake,))
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Read a text: its valid entries, and its mistakes in order.

    Args:
        text: YAML.
        file: Name of the text in error messages.
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
        schedule: str | None = None
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            self._unreadable(error)
            root = None
        except yaml.reader.ReaderError as error:
            place = _place_of(text[: error.position])
            self._say(place, f"the character U+{error.character:04X}", "take it out")
            root = None
        except RecursionError:
            said = f"more than {DEPTH_SHOWN} lists or mappings in each other"
            self._say(_deepest(text), said, "write key: value")
            root = None
        if root is not None:
            for key, value in self._pairs(root, "names of signals with what they mean"):
                if key.value == PARAMETERS:
                    rules += self._rules(value)
                elif key.value == SCHEDULE and isinstance(value, yaml.ScalarNode):
                    with self._at(value):
                        schedule = _schedule(value.value)
                elif not _is_rule(key, value):
                    with self._at(key):
                        entries[signal_name(key.value, "the name")] = self._entry(key, value)
                else:
                    rules += self._rule(key, value)
        self.mistakes.sort(key=lambda error: (error.line or 0, error.column or 0))
        return Document(
            entries=entries,
            rules=tuple(rules),
            mistakes=tuple(self.mistakes),
            schedule=schedule,
        )

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
                    self._mistake(
                        key, f"{key.value} is given here and under shard", "write it once"
                    )
                shard.update(self._value(key.value, value))
            else:
                values.update(self._value(key.value, value))
        config = SignalConfig()
        if len(self.mistakes) == before:  # an entry with mistakes is not checked as a whole
            with self._at(name, marks):
                if shard:
                    values["shard"] = _made(ShardConfig, shard)
                config = _made(SignalConfig, values)
        return Entry(config=config, file=self.file, marks=marks)

    def _shard(self, node: yaml.Node, marks: dict[str, tuple[int, int]]) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in self._pairs(node, "axis, workers, …", SHARD_KEYS):
            marks.setdefault(key.value, _place(key))
            values.update(self._value(key.value, value))
        return values

    def _value(self, key: str, node: yaml.Node) -> dict[str, object]:
        """Checked value of a key; empty if it is wrong."""
        values: dict[str, object] = {}
        with self._at(node):
            content = self._names(node) if key == "backward" else self._plain(node)
            values[key] = CHECKS[key](content)
        return values

    # ---- rules by path ----

    def _rules(self, node: yaml.Node) -> list[Rule]:
        pairs = self._pairs(node, "paths of parameters with their layouts")
        return [rule for key, value in pairs for rule in self._rule(key, value)]

    def _rule(self, pattern: yaml.Node, node: yaml.Node) -> list[Rule]:
        import yaml

        style: object = None
        shard: dict[str, object] = {}
        rules: list[Rule] = []
        before = len(self.mistakes)
        with self._at(node, {"pattern": _place(pattern)}):
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
            if len(self.mistakes) == before:  # a rule with mistakes is not checked as a whole
                rules.append(self._made_rule(pattern, style, shard))
        return rules

    def _made_rule(self, pattern: yaml.Node, style: object, shard: dict[str, object]) -> Rule:
        if isinstance(style, str) and style not in STYLES and style.startswith("shard"):
            shard["placements"] = (placement(style),)
            style = None
        if style is not None and style not in STYLES:
            raise ConfigError(f"{style!r} is no layout", closest(str(style), [*STYLES, "shard(0)"]))
        line, column = _place(pattern)
        blocks = shard.pop("blocks", None) if style is not None else None
        return Rule(
            pattern=pattern.value,
            style=style if isinstance(style, str) else None,
            shard=_made(ShardConfig, shard),
            blocks=blocks if isinstance(blocks, int) else None,
            file=self.file,
            line=line,
            column=column,
        )

    # ---- nodes ----

    def _pairs(
        self, node: yaml.Node, wanted: str, known: tuple[str, ...] | None = None, depth: int = 0
    ) -> list[tuple[yaml.Node, yaml.Node]]:
        """Keys and values of a mapping, with `<<` merged; unknown and repeated keys are
        mistakes.
        """
        import yaml

        if _is_nothing(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self._mistake(
                node, f"{_shown(node)} is given where {wanted} belong", "write key: value"
            )
            return []
        if node.tag != f"{YAML_TAG}map":
            self._mistake(node, f"the tag {_shown_tag(node)}", "take it out")
            return []
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == f"{YAML_TAG}merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif not isinstance(key, yaml.ScalarNode) or not is_text(key.value):
                self._mistake(key, "a key that is not a word", "write key: value")
            elif key.value in pairs:
                self._mistake(key, f"{key.value!r} is given twice", "join the two")
            elif known is not None and key.value not in known:
                self._mistake(key, f"unknown key {key.value!r}", closest(key.value, known))
            else:
                pairs[key.value] = (key, value)
        for key, value in self._merged(node, merged, wanted, known, depth):
            pairs.setdefault(key.value, (key, value))
        return list(pairs.values())

    def _merged(
        self,
        node: yaml.Node,
        others: list[yaml.Node],
        wanted: str,
        known: tuple[str, ...] | None,
        depth: int,
    ) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The keys and values that a mapping merges from others by `<<`."""
        self._merges += len(others)
        if others and (depth == MERGE_DEPTH_MAX or self._merges > MERGES_MAX):
            self._mistake(node, "too many `<<` in each other", "write the keys out")
            return
        for other in others:
            yield from self._pairs(other, wanted, known, depth + 1)

    def _names(self, node: yaml.Node) -> object:
        """A scalar as written: signal names are strings, even `on`, `no` and `1`."""
        import yaml

        return node.value if isinstance(node, yaml.ScalarNode) else self._plain(node)

    def _plain(self, node: yaml.Node, depth: int = 0) -> object:
        """Value of a node: boolean, whole number, string, or a list or mapping of these."""
        import yaml

        if depth > 2:
            raise ConfigError("a list or mapping too deep", "write a list of plain values")
        kind = node.tag.removeprefix(YAML_TAG)
        if kind.startswith("!") or (kind == "seq") != isinstance(node, yaml.SequenceNode):
            raise ConfigError(f"the tag {_shown_tag(node)}", "take it out")
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {
                key.value: self._plain(value, depth + 1) for key, value in self._pairs(node, "it")
            }
        if kind == "null":
            raise ConfigError("a key without a value", "write one, or leave the key out")
        if kind == "bool":
            return BOOLEANS.get(node.value.lower(), node.value)
        if kind == "int" and INTEGER.fullmatch(node.value):
            if len(node.value) > INTEGER_DIGITS_MAX:
                raise ConfigError(f"a number of {len(node.value)} digits", "write a smaller one")
            return int(node.value)
        return node.value

    # ---- mistakes ----

    def _mistake(self, node: yaml.Node, text: str, remedy: str) -> None:
        self._say(_place(node), text, remedy)

    def _say(self, place: tuple[int, int], text: str, remedy: str) -> None:
        line, column = place
        self.mistakes.append(ConfigError(text, remedy, file=self.file, line=line, column=column))

    @contextlib.contextmanager
    def _at(
        self, node: yaml.Node, marks: Mapping[str, tuple[int, int]] | None = None
    ) -> Iterator[None]:
        """Records a mistake at the position of its key, else of the node, and continues."""
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


def _place(node: yaml.Node | yaml.Event) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _place_of(before: str) -> tuple[int, int]:
    """Line and column just after a text."""
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def _deepest(text: str) -> tuple[int, int]:
    """Line and column where lists and mappings are nested deeper than any configuration needs."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_SHOWN:
            return _place(event)
    return 1, 1


def _is_nothing(node: yaml.Node) -> bool:
    return bool(node.tag == f"{YAML_TAG}null") and isinstance(node.value, str)


def _schedule(name: str) -> str:
    """The name of a pipeline schedule.

    Raises:
        ConfigError: The schedule does not exist.
    """
    from gt.pipeline.schedules import SCHEDULES

    if name not in SCHEDULES:
        raise ConfigError(f"{name!r} is no schedule", closest(name, SCHEDULES))
    return name


def _is_rule(name: yaml.Node, node: yaml.Node) -> bool:
    """True if an entry is a rule for parameters rather than a signal."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return not _is_nothing(node)
    return "*" in name.value or any(key.value == "style" for key, _ in node.value)


def _shown_tag(node: yaml.Node) -> str:
    return str(node.tag).replace(YAML_TAG, "!!")


def _shown(node: yaml.Node) -> str:
    return repr(node.value) if isinstance(node.value, str) else "a list"


def _made(made: Callable[..., T], values: Mapping[str, object]) -> T:
    """A configuration from values that have been checked individually."""
    return made(**values)
