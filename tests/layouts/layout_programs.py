"""Random programs over tensors with random layouts, as steps that numpy and GT both run.

A program is a list of steps; each makes a tensor of those that earlier steps made. numpy runs a
step while the program is written, so the writer knows shapes and needs no rules of its own, and
keeps away from values where two correct results may differ: ties, and numbers that grow. No
comparing in here.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

import gt
import gt.nn.functional as F
from gt import _core
from gt.worker.reference import random_numbers

STEPS_MIN, STEPS_MAX = 20, 60
SIZES = (1, 2, 2, 3, 4, 5, 6, 7, 9)  # below, at and above a mesh's size; even and uneven
ELEMENTS_MAX = 600
LARGEST = 1e3  # of values that go on: sums in another order stay close
GAP = 1e-6  # between values that are compared or ordered
TRIES = 40  # to find a step that fits the tensors at hand

Array = np.ndarray
Value = object


class Name(str):
    """Name of an earlier step."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclasses.dataclass(frozen=True)
class Step:
    """`out = operator(arguments)`."""

    out: Name
    operator: str
    args: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.out} = {self.operator}({', '.join(map(repr, self.args))})"


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator in numpy and in GT, and how a writer draws arguments: None where nothing fits."""

    theirs: Callable[..., Array]
    ours: Callable[..., gt.Tensor]
    draw: Callable[[Writer], tuple[object, ...] | None]


class Writer:
    """Writes one program, running it under numpy as it goes."""

    def __init__(self, seed: int, layouts: Callable[[Sequence[int], random.Random], str]) -> None:
        self.random = random.Random(seed)
        self.layouts = layouts
        self.values: dict[Name, Array] = {}
        self.steps: list[Step] = []

    def write(self) -> list[Step]:
        """The program; its first steps are operands."""
        count = self.random.randint(STEPS_MIN, STEPS_MAX)
        while len(self.steps) < count:
            kinds = ("given", "place") if len(self.steps) < 4 else KINDS
            if not any(self.step(self.random.choice(kinds)) for _ in range(TRIES)):
                self.step("given")
        return self.steps

    def step(self, kind: str) -> bool:
        args = OPERATORS[kind].draw(self)
        if args is None:
            return False
        step = Step(Name(f"x{len(self.steps)}"), kind, args)
        value = theirs(step, self.values)
        floating = value.dtype == np.float64
        if value.size > ELEMENTS_MAX or value.ndim > 5:
            return False
        if floating and not (np.isfinite(value).all() and np.abs(value).max(initial=0) <= LARGEST):
            return False
        self.steps.append(step)
        self.values[step.out] = value
        return True

    def name(self, of: Callable[[Array], bool] = lambda _: True) -> Name | None:
        """A tensor of floats, a younger one more often."""
        known = [n for n, x in self.values.items() if x.dtype == np.float64 and of(x)]
        recent = known[-4:] if self.random.random() < 0.6 else known
        return self.random.choice(recent) if recent else None

    def pick(self, *choices: object) -> object:
        return self.random.choice(choices)

    def dims(self, rank: int, *, least: int = 1) -> tuple[int, ...]:
        """Different dims of a tensor, some counted from the back."""
        count = self.random.randint(least, rank) if rank >= least else rank
        chosen = self.random.sample(range(rank), count)
        return tuple(d if self.random.random() < 0.7 else d - rank for d in chosen)

    def shape(self, *, rank_max: int = 4) -> tuple[int, ...]:
        sizes = [self.random.choice(SIZES) for _ in range(self.random.randint(0, rank_max))]
        if self.random.random() < 0.03 and sizes:
            sizes[self.random.randrange(len(sizes))] = 0
        while math.prod(sizes) > ELEMENTS_MAX:
            sizes.pop()
        return tuple(sizes)

    def seed(self) -> int:
        return self.random.randrange(2**31)


def program(seed: int, layouts: Callable[[Sequence[int], random.Random], str]) -> list[Step]:
    """The program of a seed; `layouts` draws a placement's text for a shape."""
    return Writer(seed, layouts).write()


def theirs(step: Step, values: dict[Name, Array]) -> Array:
    """A step under numpy; KeyError where an argument was never made."""
    args = [values[x] if isinstance(x, Name) else x for x in step.args]
    with np.errstate(all="ignore"):
        return np.asarray(OPERATORS[step.operator].theirs(*args))


def ours(step: Step, values: dict[Name, gt.Tensor]) -> gt.Tensor:
    """A step under GT."""
    args = [values[x] if isinstance(x, Name) else x for x in step.args]
    return OPERATORS[step.operator].ours(*args)


# ---- operands ----


def values_of(shape: Sequence[int], seed: int) -> Array:
    return np.random.Generator(np.random.PCG64(seed)).uniform(-2, 2, shape)


def _uniform(shape: tuple[int, ...], seed: int) -> Array:
    start = (0,) * len(shape)
    return random_numbers.uniform(shape, "float64", seed, 3, -1.0, 1.0, shape, start)


def _gt_uniform(shape: tuple[int, ...], seed: int) -> gt.Tensor:
    return _core.call(
        "uniform", size=shape, dtype=gt.float64, low=-1.0, high=1.0, seed=seed, draw=3
    )


def _dropped(x: Array, seed: int) -> Array:
    start = (0,) * x.ndim
    mask = random_numbers.dropout_mask(x.shape, "bool", seed, 3, 0.4, x.shape, start)
    return x * mask / 0.6


def _gt_dropped(x: gt.Tensor, seed: int) -> gt.Tensor:
    return _core.call("dropout", x, p=0.4, seed=seed, draw=3)[0]


# ---- numpy's side of what numpy has under another form ----


def _reduced(of: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, keepdim: of(x, axis=dim, keepdims=keepdim)


def _softmax(x: Array, dim: int) -> Array:
    raised = np.exp(x - x.max(axis=dim, keepdims=True))
    return raised / raised.sum(axis=dim, keepdims=True)


def _logsumexp(x: Array, dim: tuple[int, ...], keepdim: bool) -> Array:
    return np.log(np.exp(x).sum(axis=dim, keepdims=keepdim))


def _layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * weight + bias


def _rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5) * weight


def _cross_entropy(x: Array, seed: int) -> Array:
    picked = np.take_along_axis(np.log(_softmax(x, 1)), labels(x.shape, seed)[:, None], 1)
    return -picked.mean()


def labels(shape: Sequence[int], seed: int) -> Array:
    """A class for each place of [n, c, ...] but its classes."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.integers(0, shape[1], (shape[0], *shape[2:]))


def places(count: int, size: int, seed: int) -> Array:
    """`count` indexes below `size`, some twice."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, size, count)


def _index_add(x: Array, dim: int, source: Array, seed: int) -> Array:
    result = np.moveaxis(x.copy(), dim, 0)
    index = places(source.shape[dim], x.shape[dim], seed)
    np.add.at(result, index, np.moveaxis(source, dim, 0))
    return np.moveaxis(result, 0, dim)


def _written(x: Array, dim: int, start: int, stop: int, step: int, y: float) -> Array:
    result = x.copy()
    result[(slice(None),) * dim + (slice(start, stop, step),)] = y
    return result


def _gt_written(x: gt.Tensor, dim: int, start: int, stop: int, step: int, y: float) -> gt.Tensor:
    result = x.clone()
    result[(slice(None),) * dim + (slice(start, stop, step),)] = y
    return result


def _sliced(x: Array, dim: int, start: int, stop: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


def _added(x: gt.Tensor, y: gt.Tensor) -> gt.Tensor:
    return x.clone().add_(y)


# ---- arguments ----


def _given(w: Writer) -> tuple[object, ...]:
    return w.shape(), w.seed()


def _place(w: Writer) -> tuple[object, ...] | None:
    x = w.name()
    return None if x is None else (x, w.layouts(w.values[x].shape, w.random))


def _one(w: Writer) -> tuple[object, ...] | None:
    x = w.name()
    return None if x is None else (x,)


def _scalar(w: Writer) -> tuple[object, ...] | None:
    x = w.name()
    return None if x is None else (x, w.pick(2.0, -0.5, 0.25, 1.0))


def _pair(w: Writer) -> tuple[object, ...] | None:
    """Two that broadcast."""
    x = w.name()
    if x is None:
        return None
    y = w.name(lambda other: _broadcast(w.values[x], other))
    return None if y is None else (x, y) if w.random.random() < 0.5 else (y, x)


def _narrow_pair(w: Writer) -> tuple[object, ...] | None:
    """The second broadcasts to the first's shape."""
    pair = _pair(w)
    if pair is None:
        return None
    shapes = [w.values[x].shape for x in pair]
    return pair if np.broadcast_shapes(*shapes) == shapes[0] else None


def _apart_pair(w: Writer) -> tuple[object, ...] | None:
    """Two that broadcast and nowhere come near each other."""
    pair = _pair(w)
    if pair is None:
        return None
    apart = np.abs(w.values[pair[0]] - w.values[pair[1]])
    return pair if apart.min(initial=1) > GAP else None


def _numbered_pair(w: Writer) -> tuple[object, ...] | None:
    """Like _apart_pair, with a first dimension."""
    pair = _apart_pair(w)
    return pair if pair and max(w.values[name].ndim for name in pair) else None


def _broadcast(x: Array, y: Array) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a in (b, 1) or b == 1 for a, b in pairs)


def _away(w: Writer) -> tuple[object, ...] | None:
    """One without values near zero, where relu and abs have no derivative."""
    x = w.name(lambda x: np.abs(x).min(initial=1) > GAP)
    return None if x is None else (x,)


def _between(w: Writer) -> tuple[object, ...] | None:
    """One without values near a whole number, where an integer is another one."""
    x = w.name(lambda x: np.abs(x - np.round(x)).min(initial=1) > GAP)
    return None if x is None else (x,)


def _reduction(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 0 and x.size > 0)
    return None if x is None else (x, w.dims(w.values[x].ndim), w.pick(True, False))


def _ordered(x: Array, dim: int | tuple[int, ...]) -> bool:
    """True where no two values of a line (of a plane, ...) are close to each other."""
    dims = dim if isinstance(dim, tuple) else (dim,)
    lines = np.moveaxis(x, dims, tuple(range(len(dims)))).reshape(
        math.prod(x.shape[d] for d in dims), -1
    )
    return bool((np.diff(np.sort(lines, axis=0), axis=0) > GAP).all())


def _extreme(w: Writer) -> tuple[object, ...] | None:
    choice = _reduction(w)
    return choice if choice and _ordered(w.values[choice[0]], choice[1]) else None


def _line(w: Writer) -> tuple[object, ...] | None:
    """One and a dim of it."""
    x = w.name(lambda x: x.ndim > 0 and x.size > 0)
    return None if x is None else (x, w.random.randrange(w.values[x].ndim))


def _ordered_line(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    return choice if choice and _ordered(w.values[choice[0]], choice[1]) else None


def _top(w: Writer) -> tuple[object, ...] | None:
    choice = _ordered_line(w)
    return choice and (*choice, w.random.randint(1, w.values[choice[0]].shape[choice[1]]))


def _several(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    if choice is None or w.values[choice[0]].shape[choice[1]] < 3:
        return None
    return choice


def _product(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 0)
    if x is None:
        return None
    a = w.values[x]

    def fits(b: Array) -> bool:
        if b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            return False
        return _broadcast(np.empty((*a.shape[:-2], 1)), np.empty((*b.shape[:-2], 1)))

    y = w.name(fits)
    return None if y is None else (x, y)


def _linear(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 0)
    if x is None:
        return None
    weight = w.name(lambda y: y.ndim == 2 and y.shape[1] == w.values[x].shape[-1])
    if weight is None:
        return None
    bias = w.name(lambda b: b.shape == w.values[weight].shape[:1])
    return None if bias is None else (x, weight, bias)


def _normal(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 0 and x.shape[-1] > 1 and x.var(axis=-1).min(initial=1) > 0.01)
    if x is None:
        return None
    size = w.values[x].shape[-1:]
    weight, bias = (w.name(lambda y: y.shape == size) for _ in range(2))
    return None if weight is None or bias is None else (x, weight, bias)


def _scores(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 1 and x.size > 0)
    return None if x is None else (x, w.seed())


def _reshape(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.size > 0)
    if x is None:
        return None
    rest, sizes = w.values[x].size, []
    while rest > 1 and len(sizes) < 4 and w.random.random() < 0.8:
        sizes.append(w.random.choice([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= sizes[-1]
    sizes.insert(w.random.randint(0, len(sizes)), rest)
    return x, tuple(sizes)


def _permutation(w: Writer) -> tuple[object, ...] | None:
    x = w.name()
    if x is None:
        return None
    rank = w.values[x].ndim
    return x, tuple(w.random.sample(range(rank), rank))


def _expand(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: 1 in x.shape)
    if x is None:
        return None
    sizes = [w.random.choice(SIZES) if size == 1 else size for size in w.values[x].shape]
    return x, (*w.pick((), (2,), (3,)), *sizes)


def _slice(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    if choice is None:
        return None
    size = w.values[choice[0]].shape[choice[1]]
    start = w.random.randrange(size)
    return (*choice, start, w.random.randint(start, size), w.pick(1, 1, 2, 3))


def _write(w: Writer) -> tuple[object, ...] | None:
    choice = _slice(w)
    return choice and (*choice, w.pick(0.0, 1.5))


def _alike(w: Writer) -> tuple[object, ...] | None:
    """Two that agree but in one dim, and that dim."""
    choice = _line(w)
    if choice is None:
        return None
    x, dim = choice
    shape = w.values[x].shape

    def fits(y: Array) -> bool:
        rest = [a == b for at, (a, b) in enumerate(zip(y.shape, shape, strict=False)) if at != dim]
        return y.ndim == len(shape) and all(rest)

    y = w.name(fits)
    return None if y is None else (x, y, dim)


def _same(w: Writer) -> tuple[object, ...] | None:
    choice = _alike(w)
    if choice is None or w.values[choice[0]].shape != w.values[choice[1]].shape:
        return None
    return choice


def _rows(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    return choice and (*choice, w.random.randint(0, 7), w.seed())


def _addition(w: Writer) -> tuple[object, ...] | None:
    choice = _alike(w)
    return choice and (choice[0], choice[2], choice[1], w.seed())


def _rolled(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    return choice and (*choice, w.random.randint(-4, 4))


def _padding(w: Writer) -> tuple[object, ...] | None:
    choice = _line(w)
    return choice and (choice[0], w.random.randint(0, 2), w.random.randint(0, 3))


def _flipped(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 0)
    return None if x is None else (x, w.dims(w.values[x].ndim))


def _plane(w: Writer) -> tuple[object, ...] | None:
    x = w.name(lambda x: x.ndim > 1)
    return None if x is None else (x, w.random.randint(-2, 2))


def _masked(w: Writer) -> tuple[object, ...] | None:
    choice = _apart_pair(w)
    if choice is None:
        return None
    shape = np.broadcast_shapes(*(w.values[x].shape for x in choice))
    z = w.name(lambda z: z.shape == shape)
    return None if z is None else (*choice, z)


def _index(values: Array) -> gt.Tensor:
    return gt.tensor(values, dtype=gt.int64)


def _around(x: Array, before: int, after: int) -> Array:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)], constant_values=0.5)


OPERATORS: dict[str, Operator] = {
    "given": Operator(values_of, lambda shape, seed: gt.tensor(values_of(shape, seed)), _given),
    "uniform": Operator(_uniform, _gt_uniform, _given),
    "dropout": Operator(
        _dropped, _gt_dropped, lambda w: (x := _one(w)) and (*x, w.random.randrange(2**31))
    ),
    "place": Operator(lambda x, _: x, lambda x, _: x, _place),  # whoever runs it places
    "neg": Operator(np.negative, gt.neg, _one),
    "tanh": Operator(np.tanh, gt.tanh, _one),
    "sin": Operator(np.sin, gt.sin, _one),
    "sigmoid": Operator(lambda x: 1 / (1 + np.exp(-x)), gt.sigmoid, _one),
    "relu": Operator(lambda x: np.maximum(x, 0), gt.relu, _away),
    "abs": Operator(np.abs, gt.abs, _away),
    "integer": Operator(np.trunc, lambda x: x.long().double(), _between),
    "count": Operator(
        lambda x, y: (x > y).sum(axis=0) * 1.0, lambda x, y: (x > y).sum(0).double(), _numbered_pair
    ),
    "square": Operator(np.square, gt.square, _one),
    "add": Operator(np.add, gt.add, _pair),
    "sub": Operator(np.subtract, gt.sub, _pair),
    "mul": Operator(np.multiply, gt.mul, _pair),
    "ratio": Operator(lambda x, y: x / (y * y + 1), lambda x, y: x / (y * y + 1), _pair),
    "maximum": Operator(np.maximum, gt.maximum, _apart_pair),
    "where": Operator(
        lambda x, y, z: np.where(x > y, x, z), lambda x, y, z: gt.where(x > y, x, z), _masked
    ),
    "add_scalar": Operator(np.add, gt.add, _scalar),
    "mul_scalar": Operator(np.multiply, gt.mul, _scalar),
    "add_in_place": Operator(np.add, _added, _narrow_pair),
    "write": Operator(_written, _gt_written, _write),
    "sum": Operator(_reduced(np.sum), lambda x, d, k: x.sum(d, k), _reduction),
    "mean": Operator(_reduced(np.mean), lambda x, d, k: x.mean(d, k), _reduction),
    "amax": Operator(_reduced(np.max), lambda x, d, k: x.amax(d, k), _extreme),
    "amin": Operator(_reduced(np.min), lambda x, d, k: x.amin(d, k), _extreme),
    "logsumexp": Operator(_logsumexp, lambda x, d, k: x.logsumexp(d, k), _reduction),
    "norm": Operator(
        lambda x, d, k: np.sqrt((x * x).sum(axis=d, keepdims=k) + 1),
        lambda x, d, k: (x.square().sum(d, k) + 1).sqrt(),
        _reduction,
    ),
    "var": Operator(
        lambda x, d: x.var(axis=d, ddof=1), lambda x, d: x.var(d), _several
    ),
    "argmax": Operator(
        lambda x, d: x.argmax(axis=d) * 1.0, lambda x, d: x.argmax(d).double(), _ordered_line
    ),
    "sort": Operator(lambda x, d: np.sort(x, axis=d), lambda x, d: x.sort(d)[0], _ordered_line),
    "topk": Operator(
        lambda x, d, k: np.flip(np.sort(x, axis=d), d).take(range(k), axis=d),
        lambda x, d, k: x.topk(k, d)[0],
        _top,
    ),
    "cumsum": Operator(lambda x, d: x.cumsum(axis=d), lambda x, d: x.cumsum(d), _line),
    "softmax": Operator(_softmax, lambda x, d: x.softmax(d), _line),
    "log_softmax": Operator(
        lambda x, d: np.log(_softmax(x, d)), lambda x, d: x.log_softmax(d), _line
    ),
    "layer_norm": Operator(
        _layer_norm, lambda x, a, b: F.layer_norm(x, x.shape[-1:], a, b), _normal
    ),
    "rms_norm": Operator(
        lambda x, a, _: _rms_norm(x, a),
        lambda x, a, _: F.rms_norm(x, x.shape[-1:], a, 1e-5),
        _normal,
    ),
    "cross_entropy": Operator(
        _cross_entropy,
        lambda x, seed: F.cross_entropy(x, _index(labels(x.shape, seed))),
        _scores,
    ),
    "matmul": Operator(np.matmul, gt.matmul, _product),
    "linear": Operator(lambda x, a, b: x @ a.T + b, F.linear, _linear),
    "reshape": Operator(np.reshape, lambda x, shape: x.reshape(shape), _reshape),
    "permute": Operator(np.transpose, lambda x, order: x.permute(order), _permutation),
    "expand": Operator(np.broadcast_to, lambda x, shape: x.expand(shape), _expand),
    "slice": Operator(_sliced, _sliced, _slice),
    "unsqueeze": Operator(np.expand_dims, lambda x, d: x.unsqueeze(d), _line),
    "flip": Operator(np.flip, lambda x, d: x.flip(d), _flipped),
    "roll": Operator(
        lambda x, d, by: np.roll(x, by, axis=d), lambda x, d, by: x.roll(by, d), _rolled
    ),
    "pad": Operator(_around, lambda x, a, b: F.pad(x, (a, b), value=0.5), _padding),
    "tril": Operator(np.tril, lambda x, k: x.tril(k), _plane),
    "cat": Operator(
        lambda x, y, d: np.concatenate([x, y], axis=d), lambda x, y, d: gt.cat([x, y], d), _alike
    ),
    "stack": Operator(
        lambda x, y, d: np.stack([x, y], axis=d), lambda x, y, d: gt.stack([x, y], d), _same
    ),
    "index_select": Operator(
        lambda x, d, n, seed: x.take(places(n, x.shape[d], seed), axis=d),
        lambda x, d, n, seed: x.index_select(d, _index(places(n, x.shape[d], seed))),
        _rows,
    ),
    "index_add": Operator(
        _index_add,
        lambda x, d, y, seed: x.index_add(
            d, _index(places(y.shape[d], x.shape[d], seed)), y
        ),
        _addition,
    ),
}  # fmt: skip
KINDS = (*OPERATORS, *["place"] * 5)
