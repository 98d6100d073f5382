"""Configuration in force at a place of the program: by signal, and resolved over nested scopes.

A scope is a signal's name together with the enclosing scope, so one name in two stages makes two
scopes with different ids. An inner scope inherits the settings that it does not set; they are
resolved here, and the dispatcher gets one line of text for each scope (`configure`). document.py
reads files; gt/signal.py opens scopes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from gt import _core
from gt.config import document, environment
from gt.config.layout import (
    ShardConfig,
    SignalConfig,
    check_mesh_size,
    cut_dim,
    ordered,
    signal_name,
)
from gt.config.rules import Rule
from gt.errors import ConfigError
from gt.sessions.user_line import warn

AUTO_SHARD = "auto_shard"  # the signal of uploads under GT_AUTO_SHARD=1

# Rules by path, if there are any: a list, so that a module's call checks for rules by one load.
# Modules compare by identity.
rules_in_force: list[tuple[Rule, ...]] = []
# Id of the innermost scope, 0 outside all scopes; gt._core reads it once a scope exists.
current: ContextVar[int] = ContextVar("gt.signal", default=0)
# Called when a session has begun: a loader's worker uploads the tensors of its dataset here.
at_session_begin: list[Callable[[], None]] = []


# ---- what users call ----


def register_config(name: str, config: SignalConfig | None) -> None:
    """Set the configuration of a signal; it takes precedence over `load_config` and GT_CONFIG. None
    removes it.

    Args:
        name: Name of the signal.
        config: `SignalConfig(shard=ShardConfig(axis=…, workers=[…]), backward=…, compile=…)`.

    Raises:
        ConfigError: The configuration contradicts a scope around the signal.
    """
    signal_name(name, "the name")
    if config is not None and not isinstance(config, SignalConfig):
        raise ConfigError(
            f"register_config({name!r}): {config!r} is no configuration",
            "pass SignalConfig(shard=ShardConfig(axis=…, workers=[…]))",
        )
    registered = dict(state.registered)
    registered.pop(name, None)
    if config is not None:
        file = f"register_config({name!r})"
        registered[name] = document.Entry(config=config, file=file, marks={})
    state.change(registered=registered)


def load_config(path: str) -> None:
    """Load the layouts of a YAML file, in place of those from an earlier `load_config`.

    Args:
        path: Path relative to the working directory.

    Raises:
        ConfigError: The file does not exist or is invalid; the message has line and column, and
            nothing has changed.
    """
    state.change(loaded=document.load(str(path)))


def get_config() -> dict[str, SignalConfig]:
    """Configuration of each signal from `register_config`, `load_config` and GT_CONFIG, in this
    order of precedence.

    Raises:
        ConfigError: The file that GT_CONFIG names cannot be read.
    """
    if not _core.has_begun():
        read_environment()
    return {name: entry.config for name, entry in state.entries().items()}


def schedule() -> str | None:
    """Pipeline schedule of `load_config`, else of GT_CONFIG.

    Raises:
        ConfigError: The file that GT_CONFIG names cannot be read.
    """
    if not _core.has_begun():
        read_environment()
    return state.loaded.schedule or state.named.schedule


def rules() -> tuple[Rule, ...]:
    """Rules by parameter path; the last one that matches a parameter applies."""
    return state.rules


# ---- what the session calls ----


def read_environment() -> None:
    """Read the file of GT_CONFIG again; called before anything runs.

    Raises:
        ConfigError: The file does not exist or is invalid.
    """
    path = environment.layout_file()
    named = _EMPTY
    if path is not None:
        try:
            named = document.load(path)
        except ConfigError as error:
            if error.line is not None:
                raise
            raise ConfigError(f"GT_CONFIG={path}: {error.text}", error.remedy) from error
    if named != state.named:
        state.change(named=named)
        for scope in list(state.by_signal.values()):
            scope.opened()  # opened before the file was read; on a conflict, nothing has run yet
    automatic = None
    if environment.shards_batches():
        automatic = _automatic()
    if automatic is not None or state.automatic is not None:
        _core.set_upload_signal(automatic)


def session_begins() -> None:
    """Called once per session, at its first operation, with the connection open."""
    state.warned = frozenset()
    _core.show_instructions(environment.debugs_client())
    read_environment()
    state.check_meshes()
    state.warn_of_absent_workers()
    for begin in at_session_begin:
        begin()


def forget() -> None:
    """Drop all layouts: this process computes on one worker of its own."""
    state.change(registered={}, loaded=_EMPTY, named=_EMPTY)


def _automatic() -> int:
    if state.automatic is None:
        state.automatic = _new_signal(AUTO_SHARD, None, "axis=0")
    return state.automatic


def _new_signal(name: str, backward: int | None, text: str) -> int:
    _core.set_signal_variable(current)
    return _core.signal_new(name, backward, text)


# ---- scopes ----


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Settings of a scope, including those that it inherits."""

    workers: tuple[int, ...] | None = None
    axis: int | None = None
    replicated: bool = False
    mesh: Mapping[str, int] = field(default_factory=dict)
    placements: tuple[str, ...] = ()
    blocks: int | None = None
    compile: bool = False

    def text(self, backward: int | None) -> str:
        """Text of the instruction `configure`; empty without settings."""
        words = []
        if self.workers is not None:
            words.append(f"workers=[{','.join(map(str, self.workers))}]")
        if self.axis is not None:
            words.append(f"axis={self.axis}")
        if self.replicated:
            words.append("replicated=true")
        if self.mesh:
            words.append("mesh=" + ",".join(f"{name}:{size}" for name, size in self.mesh.items()))
        if self.placements:
            words.append("placements=" + ",".join(self.placements))
        if self.blocks is not None:
            words.append(f"blocks={self.blocks}")
        if self.compile:
            words.append("compile=true")
        if words and backward is not None:
            words.insert(len(words) - self.compile, f"backward={backward}")
        return " ".join(words)

    def inner(self, config: SignalConfig) -> Meaning:
        """Settings of a scope inside this one.

        The inner scope inherits workers, mesh and `compile` unless it sets its own (with other
        workers, it does not inherit the mesh). It inherits the layout only if it sets neither a
        layout nor workers: bare `workers:` leaves the layout to the planner.

        Raises:
            ConfigError: The scope's own settings do not fit the inherited ones.
        """
        shard = config.shard or ShardConfig()
        own_workers = None if config.workers is None else tuple(config.workers)
        mesh = self.mesh if shard.mesh is None and own_workers is None else shard.mesh or {}
        compiled = self.compile if config.compile is None else config.compile
        meaning = replace(
            self, workers=own_workers or self.workers, mesh=dict(mesh), compile=compiled
        )
        says = (shard.axis, shard.replicated, shard.placements, shard.blocks, shard.mesh)
        if own_workers is not None or any(value is not None for value in says):
            placements = ordered(shard.placements, mesh) if shard.placements is not None else ()
            meaning = replace(
                meaning,
                axis=shard.axis,
                replicated=bool(shard.replicated),
                placements=placements,
                blocks=shard.blocks,
            )
        # Checks the product of the mesh against inherited workers.
        SignalConfig(workers=meaning.workers, shard=ShardConfig(mesh=meaning.mesh or None))
        return meaning

    def part(self, kind: str) -> Meaning:
        """Settings of a parameter that a module stores in another form than [in, out].

        Args:
            kind: `transposed` for a weight [out, in], `bias` for [out], `whole` for a parameter
                that each worker needs entirely.

        Raises:
            ConfigError: The weight has no such dimension.
        """
        moved = {
            "transposed": {0: 1, 1: 0, -1: -2, -2: -1},
            "bias": {1: 0, -1: 0},
            "whole": {},
        }[kind]
        if kind == "transposed":
            _check_weight_dims(self)
        if self.axis is not None:
            dim = moved.get(self.axis)
            meaning = replace(self, axis=dim, replicated=dim is None)
        else:
            dims = [
                None if (dim := cut_dim(word)) is None else moved.get(dim)
                for word in self.placements
            ]
            words = ["replicate" if dim is None else f"shard({dim})" for dim in dims]
            meaning = replace(self, placements=tuple(words))
        cuts = meaning.axis is not None or any(word != "replicate" for word in meaning.placements)
        return meaning if cuts else replace(meaning, blocks=None)


def _check_weight_dims(meaning: Meaning) -> None:
    """Check that an axis fits a weight, which has two dimensions; an axis meant for activations
    fails here.
    """
    dims = [cut_dim(word) for word in meaning.placements]
    for dim, key in [(meaning.axis, "axis"), *((dim, "placements") for dim in dims)]:
        if dim is not None and not -2 <= dim < 2:
            raise ConfigError(
                f"{key} {dim} is out of range for a weight [in, out]",
                "write 1 (its columns) or 0 (its rows); activations are not meant",
                key=key,
            )


@dataclass(kw_only=True)
class Scope:
    """A signal inside an enclosing scope."""

    signal: int
    name: str
    around: Scope | None
    backward: str | None
    """Name that the program gave; the configuration may give another."""
    part: str | None
    of_gradients: bool
    meaning: Meaning = field(default_factory=Meaning)
    gradients: Scope | None = None
    mistake: ConfigError | None = None
    """Reason why the configuration does not fit here."""

    def opened(self) -> int:
        """Id of the scope, for instructions.

        Raises:
            ConfigError: The configuration does not fit here.
        """
        if self.mistake is not None:
            raise self.mistake
        return self.signal


class _State:
    """All configurations and scopes of this process."""

    def __init__(self) -> None:
        self.registered: Mapping[str, document.Entry] = {}
        self.loaded = self.named = _EMPTY
        self.rules: tuple[Rule, ...] = ()
        self.scopes: dict[tuple[int, str, str | None, str | None, bool], Scope] = {}
        self.by_signal: dict[int, Scope] = {}
        self.automatic: int | None = None
        self.warned: frozenset[tuple[str, int]] = frozenset()
        self.lock = threading.RLock()

    def entries(self) -> dict[str, document.Entry]:
        return {**self.named.entries, **self.loaded.entries, **self.registered}

    def change(
        self,
        *,
        registered: Mapping[str, document.Entry] | None = None,
        loaded: document.Document | None = None,
        named: document.Document | None = None,
    ) -> None:
        """Replace configurations.

        A scope that the new ones do not fit raises its error when it is opened again.
        """
        with self.lock:
            self.registered = self.registered if registered is None else registered
            self.loaded = self.loaded if loaded is None else loaded
            self.named = self.named if named is None else named
            self._resolve_all()
            rules = self.named.rules + self.loaded.rules
            if rules != self.rules:
                self.rules = rules
                rules_in_force[:] = [rules] if rules else []
        if _core.has_begun():
            self.check_rules()
            self.warn_of_absent_workers()

    def _resolve_all(self) -> None:
        entries, done = self.entries(), 0
        # Outer scopes come before inner ones. Gradients may append new scopes at the end.
        while done < len(self.by_signal):
            scopes = list(self.by_signal.values())[done:]
            done += len(scopes)
            for scope in scopes:
                self._resolve(scope, entries)

    def _resolve(self, scope: Scope, entries: Mapping[str, document.Entry]) -> None:
        """Resolve the settings of a scope, and pass them to gt._core."""
        entry = entries.get(scope.name)
        around = scope.around.meaning if scope.around else Meaning()
        meaning, scope.mistake = around, None
        if entry is not None:
            try:
                meaning = around.inner(entry.config)
                check_all_workers(meaning.mesh, meaning.workers)
            except ConfigError as error:
                scope.mistake = entry.mistake(error)
        if scope.part is not None and scope.mistake is None:
            meaning = self._of_part(scope, meaning, entries)
        scope.meaning = meaning
        scope.gradients = self._gradients(scope, entry)
        backward = scope.gradients.signal if scope.gradients else None
        _core.signal_configure(scope.signal, backward, scope.meaning.text(backward))

    def _of_part(
        self, scope: Scope, meaning: Meaning, entries: Mapping[str, document.Entry]
    ) -> Meaning:
        """Settings of a scope's part; a mistake gets the position of the scope's entry
        in the file.
        """
        try:
            return meaning.part(str(scope.part))
        except ConfigError as error:
            named: Scope | None = scope
            while named is not None:
                entry = entries.get(named.name)
                shard = entry.config.shard if entry else None
                if entry is not None and getattr(shard, str(error.key), None) is not None:
                    scope.mistake = entry.mistake(error)
                    return meaning
                named = named.around
            scope.mistake = error
            return meaning

    def _gradients(self, scope: Scope, entry: document.Entry | None) -> Scope | None:
        """Scope of the gradients: its missing settings are those of the scope itself.

        If only the enclosing scope has a gradient scope, that one encloses the gradients.
        """
        if scope.of_gradients:
            return None
        name = scope.backward or (entry.config.backward if entry else None)
        if name is not None:
            return self.scope(scope, name, of_gradients=True)
        if scope.around is not None and scope.around.gradients is not None:
            around = scope.around.gradients
            return self.scope(around, scope.name, part=scope.part, of_gradients=True)
        return None

    def scope(
        self,
        around: Scope | None,
        name: str,
        backward: str | None = None,
        part: str | None = None,
        *,
        of_gradients: bool = False,
    ) -> Scope:
        """Scope of this name inside the enclosing one."""
        key = (around.signal if around else 0, name, backward, part, of_gradients)
        with self.lock:
            entry = self.scopes.get(key)
            if entry is None:
                entry = Scope(
                    signal=_new_signal(name, None, ""),
                    name=name,
                    around=around,
                    backward=backward,
                    part=part,
                    of_gradients=of_gradients,
                )
                # Entered before it is resolved, so that outer scopes have lower ids than inner
                # ones.
                self.scopes[key] = self.by_signal[entry.signal] = entry
                self._resolve(entry, self.entries())
            return entry

    def check_meshes(self) -> None:
        """Check meshes of all workers, whose number may differ from the previous session.

        Raises:
            ConfigError: A mesh has more or fewer places than there are workers.
        """
        self.check_rules()
        with self.lock:
            fitted = [scope for scope in self.by_signal.values() if scope.mistake is None]
            self._resolve_all()
        for scope in fitted:
            scope.opened()  # opened before the workers were known; nothing has run yet

    def check_rules(self) -> None:
        """Check the meshes of rules.

        Raises:
            ConfigError: A mesh has more or fewer places than there are workers.
        """
        for rule in self.rules:
            with rule.at_fault():
                check_all_workers(rule.shard.mesh, rule.shard.workers)

    def warn_of_absent_workers(self) -> None:
        """Issue one warning about all named workers that do not exist."""
        named = [(name, entry.config.workers or ()) for name, entry in self.entries().items()]
        named += [(rule.pattern, rule.shard.workers or ()) for rule in self.rules]
        if not any(workers for _, workers in named):
            return
        there = frozenset(_core.workers())
        absent = [(name, one) for name, workers in named for one in workers if one not in there]
        new = [pair for pair in absent if pair not in self.warned]
        self.warned |= frozenset(absent)
        if new:
            indexes = ", ".join(map(str, sorted({index for _, index in new})))
            names = ", ".join(dict.fromkeys(name for name, _ in new))
            count = "1 worker has" if len(there) == 1 else f"{len(there)} workers have"
            warn(
                f"{names}: asked to run on workers that are not there ({indexes}); only {count} "
                "joined, and what is asked of the others runs on those"
            )


def check_all_workers(mesh: Mapping[str, int] | None, workers: Sequence[int] | None) -> None:
    """Check that a mesh without named workers has as many places as there are workers, once they
    are known.

    Raises:
        ConfigError: The mesh has more or fewer places.
    """
    if mesh and workers is None and _core.has_begun() and (there := len(_core.workers())):
        check_mesh_size(mesh, there)


_EMPTY = document.Document(entries={}, rules=(), mistakes=())
state = _State()


def compiles() -> bool:
    """True if the scope that the program is in is to be compiled."""
    scope = state.by_signal.get(current.get())
    return scope is not None and scope.meaning.compile


def signal_in(around: int, name: str, backward: str | None = None) -> int:
    """Id of the scope `name` in the scope with the id `around` (0 for none)."""
    scope = state.scopes.get((around, name, backward, None, False))  # without the lock: a hot path
    if scope is None:
        scope = state.scope(state.by_signal.get(around), name, backward)
    return scope.opened()


def signal_of_part(signal: int, kind: str) -> int:
    """Id of a scope's part (see Meaning.part); the scope's own id if it has no layout."""
    scope = state.by_signal.get(signal)
    if scope is None or scope.part is not None:
        return signal
    if scope.meaning.axis is None and not scope.meaning.placements:
        return signal
    return state.scope(scope.around, scope.name, scope.backward, kind).opened()
