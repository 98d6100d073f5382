"""Configuration in force at a place of the program: by signal, and resolved over nested scopes.

A scope is a signal's name together with the scope around it, so the same name in two stages is two
scopes with ids of their own. An inner scope inherits the settings that it does not set; they are
resolved here, and the dispatcher gets one line of text for each scope (`configure`). Reading files
is in document.py, opening scopes in gt/signal.py.
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
from gt.user_line import warn

AUTO_SHARD = "auto_shard"  # the signal of uploads under GT_AUTO_SHARD=1

# The rules by path, or nothing: a module's call looks whether there are any, so it is one load.
# Modules compare by identity.
rules_in_force: list[tuple[Rule, ...]] = []
# The id of the innermost scope, 0 outside of all; gt._core reads it once there is any scope.
current: ContextVar[int] = ContextVar("gt.signal", default=0)
# Called when a session has begun: the worker of a loader brings the tensors of its dataset along.
at_session_begin: list[Callable[[], None]] = []


# ---- what users call ----


def register_config(name: str, config: SignalConfig | None) -> None:
    """Say what a signal means; comes before `load_config` and GT_CONFIG. None takes it back.

    Args:
        name: of the signal.
        config: `SignalConfig(shard=ShardConfig(axis=…, workers=[…]), backward=…, compile=…)`.

    Raises:
        ConfigError: it contradicts a scope that it stands in.
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
    """Take the layouts of a YAML file, in place of those of an earlier `load_config`.

    Args:
        path: relative to the working directory.

    Raises:
        ConfigError: the file is not there, or says something that cannot be meant: with line and
            column, before anything changes.
    """
    state.change(loaded=document.load(str(path)))


def get_config() -> dict[str, SignalConfig]:
    """Configuration of each signal, set by `register_config`, `load_config` and GT_CONFIG in this
    order.

    Raises:
        ConfigError: GT_CONFIG names a file that cannot be read.
    """
    if not _core.has_begun():
        read_environment()
    return {name: entry.config for name, entry in state.entries().items()}


def schedule() -> str | None:
    """The pipeline schedule of `load_config`, else of GT_CONFIG.

    Raises:
        ConfigError: GT_CONFIG names a file that cannot be read.
    """
    if not _core.has_begun():
        read_environment()
    return state.loaded.schedule or state.named.schedule


def rules() -> tuple[Rule, ...]:
    """The rules by parameter path; of those that match a parameter the last holds."""
    return state.rules


# ---- what the session calls ----


def read_environment() -> None:
    """Read the file of GT_CONFIG, as it is now; nothing runs before that.

    Raises:
        ConfigError: it is not there, or says something that cannot be meant.
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
            scope.opened()  # before the file was known; where it does not fit, nothing has run yet
    automatic = None
    if environment.shards_batches():
        automatic = _automatic()
    if automatic is not None or state.automatic is not None:
        _core.set_upload_signal(automatic)


def session_begins() -> None:
    """Called once a session, at its first operation, with the connection open."""
    state.warned = frozenset()
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
    """Settings of a scope, with those that it inherits from the scopes around it."""

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

        Workers, mesh and `compile` are inherited unless the inner scope sets its own (a mesh is not
        inherited with other workers). The layout is inherited only if the inner scope sets neither
        a layout nor workers: bare `workers:` leaves it to the planner.

        Raises:
            ConfigError: its own settings do not fit the inherited ones.
        """
        shard = config.shard or ShardConfig()
        own_workers = None if config.workers is None else tuple(config.workers)
        mesh = self.mesh if shard.mesh is None and own_workers is None else shard.mesh or {}
        compiled = self.compile if config.compile is None else config.compile
        made = replace(self, workers=own_workers or self.workers, mesh=dict(mesh), compile=compiled)
        says = (shard.axis, shard.replicated, shard.placements, shard.blocks, shard.mesh)
        if own_workers is not None or any(value is not None for value in says):
            placements = ordered(shard.placements, mesh) if shard.placements is not None else ()
            made = replace(
                made,
                axis=shard.axis,
                replicated=bool(shard.replicated),
                placements=placements,
                blocks=shard.blocks,
            )
        # checks the product of the mesh against workers that come from around
        SignalConfig(workers=made.workers, shard=ShardConfig(mesh=made.mesh or None))
        return made

    def part(self, kind: str) -> Meaning:
        """Settings of a parameter that a module stores in another form than [in, out].

        Args:
            kind: `transposed` for a weight [out, in], `bias` for [out], `whole` for a parameter
                that each worker needs all of.

        Raises:
            ConfigError: a weight has no such dimension.
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
            made = replace(self, axis=dim, replicated=dim is None)
        else:
            dims = [
                None if (dim := cut_dim(word)) is None else moved.get(dim)
                for word in self.placements
            ]
            words = ["replicate" if dim is None else f"shard({dim})" for dim in dims]
            made = replace(self, placements=tuple(words))
        cuts = made.axis is not None or any(word != "replicate" for word in made.placements)
        return made if cuts else replace(made, blocks=None)


def _check_weight_dims(meaning: Meaning) -> None:
    """A weight has two dimensions: an axis meant for activations is told here."""
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
    """A signal in the scope around it."""

    signal: int
    name: str
    around: Scope | None
    backward: str | None
    """The name that the program gave; the configuration may give another."""
    part: str | None
    of_gradients: bool
    meaning: Meaning = field(default_factory=Meaning)
    gradients: Scope | None = None
    mistake: ConfigError | None = None
    """Why the configuration does not fit here."""

    def opened(self) -> int:
        """Its id, for instructions.

        Raises:
            ConfigError: the configuration does not fit here.
        """
        if self.mistake is not None:
            raise self.mistake
        return self.signal


class _State:
    """All configurations and all scopes of this process."""

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
        """Put configurations in place of others.

        A scope that the new ones do not fit says so when it is opened again.
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
        # Scopes around others come first. Gradients may have scopes that are new, at the end.
        while done < len(self.by_signal):
            scopes = list(self.by_signal.values())[done:]
            done += len(scopes)
            for scope in scopes:
                self._resolve(scope, entries)

    def _resolve(self, scope: Scope, entries: Mapping[str, document.Entry]) -> None:
        """Find out what holds in a scope, and tell gt._core."""
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
        """Settings of a part of a scope; a mistake gets the place of its entry in the file."""
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
        """The scope of the gradients: what is not said of it holds as in the scope itself.

        Where only the scope around has one, that of its gradients takes its place around.
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
        """The scope of this name in the one around it."""
        key = (around.signal if around else 0, name, backward, part, of_gradients)
        with self.lock:
            found = self.scopes.get(key)
            if found is None:
                found = Scope(
                    signal=_new_signal(name, None, ""),
                    name=name,
                    around=around,
                    backward=backward,
                    part=part,
                    of_gradients=of_gradients,
                )
                # Entered before it is resolved, so that ids rise from outer to inner scopes.
                self.scopes[key] = self.by_signal[found.signal] = found
                self._resolve(found, self.entries())
            return found

    def check_meshes(self) -> None:
        """Look at meshes of all workers, which may be other ones than in the session before.

        Raises:
            ConfigError: one of them has more places than there are workers, or fewer.
        """
        self.check_rules()
        with self.lock:
            fitted = [scope for scope in self.by_signal.values() if scope.mistake is None]
            self._resolve_all()
        for scope in fitted:
            scope.opened()  # before there were workers; nothing has run yet

    def check_rules(self) -> None:
        """Look at the meshes of rules.

        Raises:
            ConfigError: one of them has not as many places as there are workers.
        """
        for rule in self.rules:
            with rule.at_fault():
                check_all_workers(rule.shard.mesh, rule.shard.workers)

    def warn_of_absent_workers(self) -> None:
        """One warning of all the workers that are named and not there."""
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
    """A mesh that names no workers is one of all that there are, once there are any.

    Raises:
        ConfigError: it has more places, or fewer.
    """
    if mesh and workers is None and _core.has_begun() and (there := len(_core.workers())):
        check_mesh_size(mesh, there)


_EMPTY = document.Document(entries={}, rules=(), mistakes=())
state = _State()


def signal_in(around: int, name: str, backward: str | None = None) -> int:
    """The id of the scope `name` in the scope with the id `around` (0: in none)."""
    found = state.scopes.get((around, name, backward, None, False))  # without the lock: it is hot
    if found is None:
        found = state.scope(state.by_signal.get(around), name, backward)
    return found.opened()


def signal_of_part(signal: int, kind: str) -> int:
    """The id of a scope's part (see Meaning.part); the scope's own where it has no layout."""
    scope = state.by_signal.get(signal)
    if scope is None or scope.part is not None:
        return signal
    if scope.meaning.axis is None and not scope.meaning.placements:
        return signal
    return state.scope(scope.around, scope.name, scope.backward, kind).opened()
