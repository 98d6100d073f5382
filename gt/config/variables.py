"""All environment variables of GT, each declared once.

environment.py reads them and checks them before a session begins; `gt env` and the page
docs/reference/environment.md are generated from here. Only the standard library is imported: the
page is written before GT is built.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PREFIX = "GT_"
PROCESS_GROUPS = ("auto", "off", "gloo", "nccl")
COMPRESSIONS = ("auto", "on", "off")
CODECS = ("bf16", "int8")
IDLE_SECONDS_MAX = 86_400
ON = ("1", "true", "yes", "on")
OFF = ("0", "false", "no", "off")
# Similarity above which an unknown name counts as a misspelling.
LIKENESS = 0.75
_COMPILATION = "gt.compile(function) says what to compile"
# Variables from the papers that have no effect yet, with the setting to use meanwhile or the
# behaviour that holds without them.
PROMISED = {
    "GT_AUTO_COMPILE": _COMPILATION,
    "GT_HOTPATH_WINDOW": _COMPILATION,
    "GT_HOTPATH_MAX_EXPAND": _COMPILATION,
}


@dataclass(frozen=True, kw_only=True)
class Variable(Generic[T]):
    """One environment variable.

    Args:
        name: Name as it is set.
        family: Heading under which the page lists it.
        default: Value if it is unset or empty.
        shown: Description of a default that is no fixed value.
        parse: Converts the text to a value; ValueError for an invalid text.
        expected: Description of valid texts for errors.
        summary: One sentence.
        details: Further paragraphs.
        of_session: Whether it belongs to one session, so that a program's data workers do not
            inherit it.
    """

    name: str
    family: str
    default: T
    parse: Callable[[str], T]
    expected: str
    summary: str
    shown: str = ""
    details: str = ""
    of_session: bool = False

    def value(self, environment: Mapping[str, str]) -> T:
        """Value in the environment; ValueError for an invalid text."""
        word = environment.get(self.name, "").strip()
        if not word:
            return self.default
        try:
            return self.parse(word)
        except ValueError:
            raise ValueError(f"{self.name}={word}: expected {self.expected}") from None

    def shown_default(self) -> str:
        """Default as a user would write it."""
        if self.shown:
            return self.shown
        if isinstance(self.default, bool):
            return "off"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def one_of(*words: str) -> Callable[[str], str]:
    """Parser for one of these words, in any case."""

    def parse(word: str) -> str:
        if word.lower() not in words:
            raise ValueError
        return word.lower()

    return parse


def _switch(word: str) -> bool:
    if word.lower() not in ON + OFF:
        raise ValueError
    return word.lower() in ON


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        raise ValueError
    return int(word)


def _seed(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise ValueError
    return int(word)


def _seconds(word: str) -> float:
    seconds = float(word)
    if not math.isfinite(seconds) or not 0 <= seconds <= IDLE_SECONDS_MAX:
        raise ValueError
    return seconds


def _backend(word: str) -> str:
    return {"torch": "pytorch"}.get(word := _backend_word(word), word)


_backend_word = one_of("pytorch", "torch", "native", "numpy")


def _compression(given: str) -> str:
    words = [word.strip() for word in given.lower().split(",")]
    packing = [word for word in words if word in COMPRESSIONS]
    codecs = [word for word in words if word in CODECS]
    is_known = len(packing) + len(codecs) == len(words)
    if not is_known or max(len(packing), len(codecs)) > 1 or (codecs and packing == ["off"]):
        raise ValueError
    return ",".join(words)


def _networks(word: str) -> tuple[str, ...]:
    from ipaddress import ip_network  # imported here: `import gt` does not need it

    networks = tuple(part.strip() for part in word.split(",") if part.strip())
    for network in networks:
        ip_network(network, strict=False)
    return networks


SWITCH = f"one of {', '.join(ON)}, or of {', '.join(OFF)}"
COUNT = "a whole number of at least 1"
EVERYBODY, PLACES, WORKERS, TRACES, BUILD = (
    "For every program",
    "Layouts and placing",
    "Workers",
    "Looking inside",
    "Building and testing GT",
)

WORKER_COUNT = Variable[int | None](
    name="GT_WORKERS",
    family=EVERYBODY,
    default=None,
    shown="one a GPU, else one",
    parse=_count,
    expected=COUNT,
    summary="How many workers the first operation starts.",
)
BACKEND = Variable(
    name="GT_BACKEND",
    family=EVERYBODY,
    default="auto",
    shown="pytorch where it is installed, else native",
    parse=_backend,
    expected="one of pytorch, torch, native, numpy",
    summary="What executes on the workers; see [Backends](../getting_started/backends.md).",
)
THREADS = Variable[int | None](
    name="GT_THREADS",
    family=EVERYBODY,
    default=None,
    shown="`OMP_NUM_THREADS`, else the cores divided among the workers that the program starts",
    parse=_count,
    expected=COUNT,
    summary="Threads of a large instruction of a worker.",
    details="`OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` say how they wait: asleep, without them.",
)
CONFIG = Variable(
    name="GT_CONFIG",
    family=PLACES,
    default="",
    shown="none",
    parse=str,
    expected="a path",
    summary="A YAML file of layouts, relative to the working directory; see "
    "[Signal-Based Sharding](../getting_started/signal_based_sharding.md).",
    of_session=True,
)
AUTO_SHARD = Variable(
    name="GT_AUTO_SHARD",
    family=PLACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Whether batches are cut over all workers without a file of layouts.",
    of_session=True,
)
PRICES = Variable(
    name="GT_PRICES",
    family=PLACES,
    default="",
    shown="none: prices that come with GT",
    parse=str,
    expected="a path",
    summary="A file of prices for the planner, a line `NAME=MICROSECONDS` each.",
    details="""\
Names are `message`, `byte`, `flop`, `touch`, `kernel`, and between workers 0 and 1
`message[0,1]`, `byte[0,1]`. `bucket=BYTES` is no price: so many bytes of reductions are
made together at most (1 MB; 0: none).

`gt prices FILE --workers N` measures the links; `gt-dispatcher --prices FILE` reads the
same, and with `--probe` measures what FILE does not say.""",
    of_session=True,
)
ADDRESS = Variable(
    name="GT_ADDRESS",
    family=EVERYBODY,
    default="",
    shown="none: the program starts workers itself",
    parse=str,
    expected="host:port",
    summary="A dispatcher to connect to at the first operation.",
    of_session=True,
)
TOKEN = Variable(
    name="GT_TOKEN",
    family=EVERYBODY,
    default="",
    shown="none",
    parse=str,
    expected="a token",
    summary="The token of a client or a worker for a dispatcher on another host.",
)
TLS_CA = Variable(
    name="GT_TLS_CA",
    family=EVERYBODY,
    default="",
    shown="none: connections are not encrypted",
    parse=str,
    expected="a path",
    summary="The certificate of the cluster's authority (`ca.pem` of `gt cert`): a client or a "
    "worker then encrypts its connection to the dispatcher, and checks who answers; see "
    "[Security](../security.md).",
)
NO_RING = Variable(
    name="GT_NO_RING",
    family=EVERYBODY,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Whether a client stays on TCP with a dispatcher on its own host, as from others.",
)
KERNELS = Variable(
    name="GT_KERNELS",
    family=WORKERS,
    default="auto",
    parse=one_of("auto", "off", "on"),
    expected="one of auto, off, on",
    summary="GT's own kernels in place of PyTorch's; read where a worker starts.",
    details="""\
On a CPU, in float32, `auto` takes them for attention from 8 queries on, products from 64³
multiplications on, steps of Adam over parameters of 2^17 elements and more, recurrent
layers, RMS norms, batch norms, maximum pools, and `var` and `std`; and, to PyTorch's bits,
for choices, comparisons, masks and chains of elementwise operators from 1,024 numbers on,
`cumsum`, `argmax`, `any` and their kin. In other dtypes too it takes them for choices,
comparisons of integers, counts of bools, copies of transposed dimensions and stable sorts. `on`
takes them for every size that they can compute, `off` for none.

On a GPU, `auto` is random numbers and dropout; on an H100 or H200 also the gradient of
`cross_entropy` from 2^24 scores on, which has been timed to be ahead of PyTorch's there.
`on` is also `matmul` and `linear` (bias and all) and attention with its gradient, in
bfloat16 and float16, `layer_norm`, `rms_norm` and `cross_entropy` with their gradients in
float32 too, and AdamW of a whole group in float32, wherever operands fit. What does not fit
runs in PyTorch, and the worker says so on standard error, once for each operator and reason
(`gt.worker: PyTorch runs matmul in place of …, which does not take …`); so it does where
there is no matching GPU or GT was built without nvcc. `off` draws random numbers on the
host: their bits are the same.

With `on` on all GPUs of a host, sums of float32, bfloat16 and float16, gathers along the
first dimension in equal shards, reduce-scatters and broadcasts of up to 8 MiB go between
them by GT's kernels, to the same bits, and by copies what these do not take (`gt.worker:
copies do all_reduce in place of …`).

`gt.debug.get_worker_stats()` counts the instructions of own kernels as `own_calls`.""",
)
ATEN = Variable(
    name="GT_ATEN",
    family=WORKERS,
    default="auto",
    parse=one_of("auto", "on", "off"),
    expected="one of auto, on, off",
    summary="Whether a torch worker runs most operators in C++; the bits are the same.",
    details="""\
`auto`: as soon as there is a helper for the installed torch. The first program that runs
for a dozen seconds compiles it beside its work at the lowest priority (a C++20 compiler,
torch 2.11 or later); it ends with the program. `on` compiles before the first instruction,
`off` stays in Python.""",
)
CACHE_DIR = Variable(
    name="GT_CACHE_DIR",
    family=WORKERS,
    default="",
    shown="`$XDG_CACHE_HOME/gt`, else `~/.cache/gt`",
    parse=str,
    expected="a path",
    summary="Where the compiled libraries of `GT_ATEN` and `GT_FRONT` are kept; `CXX` is the "
    "compiler that makes them.",
)
IDLE_SECONDS = Variable(
    name="GT_IDLE_SECONDS",
    family=WORKERS,
    default=5.0,
    parse=_seconds,
    expected=f"seconds, up to {IDLE_SECONDS_MAX}",
    summary="After so many seconds without work a worker gives memory back to the system.",
)
TRUSTED_NETWORKS = Variable[tuple[str, ...]](
    name="GT_TRUSTED_NETWORKS",
    family=WORKERS,
    default=(),
    shown="none",
    parse=_networks,
    expected="networks, as 10.0.0.0/8,192.168.7.0/24",
    summary="Networks without strangers, on which process groups of workers started by hand may "
    "connect, as `10.0.0.0/8,192.168.7.0/24`.",
)
GROUPS = Variable(
    name="GT_PROCESS_GROUPS",
    family=WORKERS,
    default="auto",
    parse=one_of(*PROCESS_GROUPS),
    expected=f"one of {', '.join(PROCESS_GROUPS)}",
    summary="How collectives of workers started by hand go between hosts.",
    details="`auto` is NCCL on GPUs of a trusted network, else GT's own links, as with `off`.",
)
COMPRESSION = Variable(
    name="GT_COMPRESSION",
    family=WORKERS,
    default="auto",
    parse=_compression,
    expected=f"one of {', '.join(COMPRESSIONS)}, or a codec ({', '.join(CODECS)}), alone or as in "
    "on,int8",
    summary="Whether workers pack what goes to another host; set it on all workers alike.",
    details="""\
`auto` packs where the link has been measured to be slower than packing, `on` always, `off`
never. Nothing is lost: bfloat16 takes three quarters of its bytes, what would not get
shorter goes as it is. `gt.debug.get_worker_stats()` counts `plain_bytes` and
`packed_bytes`.

With `bf16` or `int8`, alone or as in `on,int8`, *float32 sums* of 16 KiB and more between
hosts, gradients above all, lose bits before that. `bf16` keeps 8 significant bits (half the
bytes); `int8` is a signed byte for each number and a scale for each 256 (0.27 of the bytes;
an error of at most a 254th of the block's largest number, added to the same gradient of the
next step). All workers still hold the same bits. `rounded_sums`, `rounding_error` and
`rounding_error_max` say what it costs.""",
)
FRONT = Variable(
    name="GT_FRONT",
    family=PLACES,
    default="auto",
    parse=one_of("auto", "on", "off"),
    expected="one of auto, on, off",
    summary="Whether a PyTorch program's operators on the device `mux` are called in C++; the bits "
    "are the same.",
    details="""\
`auto`: as soon as there is a library for the installed torch, which the first program that
runs for half a minute compiles beside its work at the lowest priority (a C++20 compiler and
Python's headers). It is tried with torch 2.15; with a torch that it does not compile
against, operators stay in Python. `on` compiles when `gt.torch` is imported, and says why
where it cannot; `off` stays in Python.""",
)
DDP = Variable(
    name="GT_DDP",
    family=PLACES,
    default="refuse",
    parse=one_of("refuse", "ignore"),
    expected="one of refuse, ignore",
    summary="What DistributedDataParallel is to a PyTorch model on the device `mux`: an error that "
    "names the way by layouts, or a wrapper that does nothing.",
)
INSTRUCTION_LOG = Variable(
    name="GT_INSTRUCTION_LOG",
    family=TRACES,
    default="",
    shown="none",
    parse=str,
    expected="a path",
    summary="A file for the instruction log of this program, or of the dispatcher; see "
    "[Monitoring Tools](../getting_started/monitoring_tools.md).",
    of_session=True,
)
VERBOSE = Variable(
    name="GT_VERBOSE",
    family=TRACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Whether standard error says what starts and which transport is used.",
)
RULE_LOG = Variable(
    name="GT_RULE_LOG",
    family=TRACES,
    default="",
    shown="none",
    parse=str,
    expected="a path",
    summary="A file for the rules by path that mean a parameter; `gt config explain` reads it.",
)
LOOK_AHEAD = Variable[int | None](
    name="GT_LOOK_AHEAD",
    family=BUILD,
    default=None,
    shown="all of it",
    parse=_seed,
    expected="0 or a seed",
    summary="How much of the stream behind an instruction workers look at: 0 for nothing, a seed "
    "to draw it; tests show with it that no result depends on that.",
)
STABLE_ABI_ONLY = Variable(
    name="GT_STABLE_ABI_ONLY",
    family=BUILD,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Whether GT finds the user's line by Python's stable ABI alone, as on a Python that it "
    "does not know.",
)
NVCC = Variable(
    name="GT_NVCC",
    family=BUILD,
    default="",
    shown="the one of the build's Python, else that of the path",
    parse=str,
    expected="a path",
    summary="The CUDA compiler that a build of GT takes.",
)

COMPILE = Variable(
    name="GT_COMPILE",
    family=EVERYBODY,
    default="auto",
    parse=one_of("auto", "inductor", "eager", "off"),
    expected="auto, inductor, eager or off",
    summary="How a worker compiles what `gt.compile` and `compile: true` ask for.",
    details="`auto` is PyTorch's compiler, inductor, for each program that is faster with it: "
    "some calls are timed first. `inductor` times nothing. `eager` sends programs as calls too, "
    "and a worker runs them by the kernels that run each instruction alone, so that no bit "
    "changes. `off` holds nothing back, and compiles nothing.",
)
HOTPATH_THRESHOLD = Variable(
    name="GT_HOTPATH_THRESHOLD",
    family=EVERYBODY,
    default=2,
    parse=_count,
    expected=COUNT,
    summary="How often a program has to come before it is compiled.",
)
HOTPATH_MIN_SEQ = Variable(
    name="GT_HOTPATH_MIN_SEQ",
    family=EVERYBODY,
    default=4,
    parse=_count,
    expected=COUNT,
    summary="The fewest instructions of a program that is compiled.",
)
DEBUG_CLIENT = Variable(
    name="GT_DEBUG_CLIENT",
    family=TRACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Writes a line for each instruction that the program emits, with its results and the "
    "line of the program, on standard error.",
    of_session=True,
)
DEBUG_DISPATCHER = Variable(
    name="GT_DEBUG_DISPATCHER",
    family=TRACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Writes a line for each placement and its reason on standard error: of this program, "
    "or of the dispatcher that is started with it.",
    of_session=True,
)
DEBUG_WORKER = Variable(
    name="GT_DEBUG_WORKER",
    family=TRACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Writes a line for each instruction that a worker has executed, with its time, on the "
    "worker's standard error.",
)
DEBUG_COMPILE = Variable(
    name="GT_DEBUG_COMPILE",
    family=TRACES,
    default=False,
    parse=_switch,
    expected=SWITCH,
    summary="Says on standard error what becomes of each program of `gt.compile`.",
)
VARIABLES: tuple[Variable[object], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Variable)
)
NAMES = {variable.name: variable for variable in VARIABLES}


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Misspelt variables: each name that is close to a known one, with the known one."""
    unknown = [name for name in names if name.startswith(PREFIX)]
    unknown = [name for name in unknown if name not in NAMES and name not in PROMISED]
    alike = {name: difflib.get_close_matches(name, NAMES, 1, LIKENESS) for name in unknown}
    return {name: matches[0] for name, matches in alike.items() if matches}


def promised(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are switched on and have no effect yet, with the setting to use meanwhile."""
    off = ("", *OFF)
    return {
        name: instead
        for name, instead in PROMISED.items()
        if environment.get(name, "").strip().lower() not in off
    }
