"""`gt config check`: the mistakes in a file of layouts, all at once, and what may not be meant."""

import sys
from collections.abc import Iterator, Mapping

from gt.config import document
from gt.config.layout import check_mesh_size
from gt.config.rules import ROOT
from gt.config.scopes import Meaning
from gt.errors import ConfigError


def run(file: str, *, workers: int | None) -> int:
    """Print `file:line:column: error: …` and `warning: …` lines, and one with the sums.

    Args:
        file: path, or `-` for standard input.
        workers: number of workers. Larger indexes cause a warning; a mesh of all workers with
            another number of places is an error.

    Returns:
        1 if there is an error, else 0.
    """
    config = document.read_from(sys.stdin.buffer, "-") if file == "-" else document.read(file)
    errors = [*config.mistakes, *_misfits(config)]
    if workers is not None:
        errors += _other_meshes(config, workers)
    notes = [*_disagreements(config), *_mistaken_for_signals(config)]
    if workers is not None:
        notes += _absent(config, workers)
    messages = [("error", one) for one in errors] + [("warning", one) for one in notes]
    messages.sort(key=lambda pair: (pair[1].line or 0, pair[1].column or 0))
    for kind, one in messages:
        place = ":".join(str(part) for part in (one.file, one.line, one.column) if part is not None)
        print(f"{place}: {kind}: {one.text}; {one.remedy}")
    sums = f"{len(config.entries)} signals, {len(config.rules)} rules"
    print(f"{file}: {sums}, {len(errors)} errors, {len(notes)} warnings")
    return 1 if errors else 0


def _inside(name: str, config: document.Document) -> str | None:
    """Entry that encloses a name's scope, judged by its name: `stage0_colpar` is in `stage0`."""
    while "_" in name:
        name = name.rpartition("_")[0]
        if name in config.entries:
            return name
    return None


def _misfits(config: document.Document) -> Iterator[ConfigError]:
    """Entries that do not fit the enclosing one."""
    for name, entry in config.entries.items():
        outer = _inside(name, config)
        if outer is None:
            continue
        try:
            Meaning().inner(config.entries[outer].config).inner(entry.config)
        except ConfigError as error:
            yield entry.mistake(
                ConfigError(f"inside of {outer}: {error.text}", error.remedy, key=error.key)
            )


def _other_meshes(config: document.Document, count: int) -> Iterator[ConfigError]:
    """Meshes of all workers with another number of places."""
    for name, entry in config.entries.items():
        if entry.config.shard is not None and not _names_workers(name, config):
            yield from map(entry.mistake, _mistakes(entry.config.shard.mesh, count))
    for rule in config.rules:
        if rule.shard.workers is None:
            for error in _mistakes(rule.shard.mesh, count):
                yield rule.mistake(f"{rule.pattern}: {error.text}", error.remedy)


def _names_workers(name: str | None, config: document.Document) -> bool:
    """True if an entry, or one that encloses it, names its workers."""
    while name is not None:
        if config.entries[name].config.workers is not None:
            return True
        name = _inside(name, config)
    return False


def _mistakes(mesh: Mapping[str, int] | None, count: int) -> list[ConfigError]:
    try:
        check_mesh_size(mesh, count)
    except ConfigError as error:
        return [error]
    return []


def _disagreements(config: document.Document) -> Iterator[ConfigError]:
    for name, entry in config.entries.items():
        outer = _inside(name, config)
        workers = entry.config.workers
        if outer is None or workers is None:
            continue
        around = config.entries[outer].config.workers
        if around is not None and list(around) != list(workers):
            yield entry.mistake(
                ConfigError(
                    f"{name} names the workers {list(workers)} and {outer} around it "
                    f"{list(around)}",
                    "leave them out here to have those around",
                    key="workers",
                )
            )


def _mistaken_for_signals(config: document.Document) -> Iterator[ConfigError]:
    for name, entry in config.entries.items():
        if name.startswith(f"{ROOT}."):
            yield entry.mistake(
                ConfigError(
                    f"{name} is the name of a signal here",
                    "write it under parameters: where a parameter is meant",
                )
            )


def _absent(config: document.Document, count: int) -> Iterator[ConfigError]:
    for name, entry in config.entries.items():
        absent = [index for index in entry.config.workers or () if index >= count]
        if absent:
            yield entry.mistake(_no_worker(name, absent, count))
    for rule in config.rules:
        absent = [index for index in rule.shard.workers or () if index >= count]
        if absent:
            text = _no_worker(rule.pattern, absent, count)
            yield rule.mistake(text.text, text.remedy)


def _no_worker(name: str, absent: list[int], count: int) -> ConfigError:
    indexes = ", ".join(map(str, absent))
    return ConfigError(
        f"{name} names worker {indexes}, and there are {count}",
        "it runs on those that there are",
        key="workers",
    )
