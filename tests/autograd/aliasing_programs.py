"""Random programs of views and in-place writes, as lines of Python that PyTorch and GT both run.

A program is a list of lines; each works on the names that earlier lines made. PyTorch runs a line
while the program is written, so the writer knows shapes and needs no rules of its own. No comparing
in here, no GT.
"""

from __future__ import annotations

import math
import random
import re
import warnings
from collections.abc import Callable

import torch

STEPS_MAX = 14
# Programs from this seed on are longer, of more dtypes, and differentiate gradients.
LONG_FROM = 10_000
LONG_STEPS = (8, 26)
NUMBERS = ("2", "0.5", "-1", "3", "1.5")
FLOATS = (torch.float64, torch.float32)
# PyTorch's results have their operands' strides, GT's are always in order: so do these operands.
CONTIGUOUS = ".contiguous()"


class Writer:
    """Writes one program, running it under PyTorch as it goes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.long = seed >= LONG_FROM
        self.lines: list[str] = []
        self.names: dict[str, object] = {"T": torch}

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def tensor(self, of: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        """The name of a tensor, a younger one more often."""
        known = [n for n, x in self.names.items() if isinstance(x, torch.Tensor) and of(x)]
        return self.random.choice(known[-4:] if known and self.chance(0.5) else known or [None])

    def at(self, name: str) -> torch.Tensor:
        index = self.names[name]
        assert isinstance(index, torch.Tensor), name
        return index

    def fresh(self) -> str:
        return f"x{len(self.names) - 1}"

    def accept(self, line: str) -> bool:
        """Runs the line; keeps it unless PyTorch's answer is not for GT to copy."""
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                run(line, self.names)
            if any("deprecated" in str(warning.message) for warning in warned):
                return False
        except Exception as error:  # noqa: BLE001 - the error is part of the program's meaning
            if not comparable(error) or ("backward" in line and unpromised(error)):
                return False
        if any(0 in x.shape for x in self.tensors()) and re.search(r"\[(T|\[|\.\.\., )", line):
            return False  # into nothing, PyTorch takes some wrong indexes and not others
        if any(x.requires_grad and x.dtype not in FLOATS for x in self.tensors()):
            return False  # `x[...] = y` of a bool x does this in PyTorch
        self.lines.append(line)
        return True

    def tensors(self) -> list[torch.Tensor]:
        return [x for x in self.names.values() if isinstance(x, torch.Tensor)]


def comparable(error: Exception) -> bool:
    text = str(error)
    return not isinstance(error, (SyntaxError, NameError)) and not any(
        word in text
        for word in (
            "INTERNAL ASSERT",
            "not implemented for",
            "deprecated",
            "setStorage",
            "with size 0",
            "Subtraction",
            "moved into the graph interior",
        )
    )


def unpromised(error: Exception) -> bool:
    """True for PyTorch errors that depend on how its backward pass replays views."""
    return "no_grad mode" in str(error) or "unsupported operation" in str(error)


COMPILED: dict[str, object] = {}


def run(line: str, names: dict[str, object]) -> None:
    if line not in COMPILED:
        if len(COMPILED) > 20_000:
            COMPILED.clear()
        COMPILED[line] = compile(line, "<program>", "exec")
    exec(COMPILED[line], names)  # type: ignore[arg-type]


def program(seed: int) -> list[str]:
    """The lines of program `seed`; the last ones run a backward pass through all that is left."""
    writer = Writer(seed)
    kinds: list[tuple[int, Callable[[Writer], str | None]]] = [
        (1, leaf), (4, view), (2, result), (5, write), (3, put), (1, twin), (1, flag),
        (1, backward),
    ]  # fmt: skip
    if writer.long:
        kinds += [(1, gradient), (1, cast)]
    weights, makers = zip(*kinds, strict=True)
    writer.accept(leaf(writer))
    for _ in range(writer.random.randint(*(LONG_STEPS if writer.long else (3, STEPS_MAX)))):
        make = writer.random.choices(makers, weights)[0]
        line = make(writer)
        if line is None:
            continue
        if writer.chance(0.15):
            line = f"with T.no_grad(): {line}"
        writer.accept(line)
    finish(writer)
    return writer.lines


def finish(writer: Writer) -> None:
    leaves = [
        n
        for n, x in writer.names.items()
        if isinstance(x, torch.Tensor) and x.dtype in FLOATS and x.requires_grad
    ]
    if leaves:
        terms = " + ".join(f"({n} * {0.5 + 0.25 * k}).sum()" for k, n in enumerate(leaves))
        if writer.accept(f"total = {terms}"):
            writer.accept("total.backward()")


def leaf(writer: Writer) -> str:
    shape = [
        writer.random.choice((1, 2, 3, 4, 2, 3))
        for _ in range(writer.random.choice((1, 2, 2, 2, 3, 3, 0)))
    ]
    if shape and writer.chance(0.03):
        shape[-1] = 0
    kinds = {"float64": 12, "float32": 2, "int64": 2, "bool": 1}
    if writer.long:
        kinds |= {"int32": 1, "uint8": 1, "bfloat16": 1}
    kind = writer.random.choices(tuple(kinds), tuple(kinds.values()))[0]
    count = math.prod(shape)
    flat: list[object] = {
        "uint8": [writer.random.randint(0, 250) for _ in range(count)],
        "int32": [writer.random.randint(-3, 3) for _ in range(count)],
        "int64": [writer.random.randint(-3, 3) for _ in range(count)],
        "bool": [writer.chance(0.5) for _ in range(count)],
    }.get(kind, [writer.random.randint(-8, 8) / 4 for _ in range(count)])
    grad = ", requires_grad=True" if "float" in kind and writer.chance(0.5) else ""
    return f"{writer.fresh()} = T.tensor({nested(flat, shape)}, dtype=T.{kind}{grad})"


def nested(flat: list[object], shape: list[int]) -> object:
    if not shape:
        return flat[0]
    inner = math.prod(shape[1:])
    return [nested(flat[k * inner : (k + 1) * inner], shape[1:]) for k in range(shape[0])]


def view(writer: Writer) -> str | None:
    name = writer.tensor()
    return None if name is None else f"{writer.fresh()} = {name}{viewed(writer, writer.at(name))}"


def dim(writer: Writer, rank: int) -> int:
    if writer.chance(0.02):
        return rank + 1
    return writer.random.randint(-max(rank, 1), max(rank, 1) - 1)


def viewed(writer: Writer, x: torch.Tensor) -> str:
    """A view operator on x."""
    rank, chance = x.ndim, writer.random
    one = dim(writer, rank)
    start = chance.randint(0, 1)
    return writer.pick(
        f"[{index(writer, x)}]",
        f"[{index(writer, x)}]",
        f".view({sizes(writer, x)})",
        f".reshape({sizes(writer, x)})",
        writer.pick(".flatten()", ".squeeze()", f".view_as({name_of(x, writer)})"),
        writer.pick(".detach()", ".data"),
        f".unsqueeze({dim(writer, rank + 1)})",
        f".squeeze({one})",
        f".expand({expanded(writer, x)})",
        ".t()" if rank < 3 or writer.chance(0.1) else ".mT",
        f".transpose({one}, {dim(writer, rank)})",
        f".permute({order(writer, rank)})",
        f".narrow({one}, {start}, {max(size_at(x, one) - start, 0)})",
        f".diagonal({chance.randint(-1, 1)}, {one}, {dim(writer, rank)})",
        slices(writer, x),
        f".select({one}, {chance.randint(-1, 1)})",
        f".flatten({one}, {dim(writer, rank)})",
    )


def name_of(x: torch.Tensor, writer: Writer) -> str:
    return next(n for n, y in writer.names.items() if y is x)


def size_at(x: torch.Tensor, d: int) -> int:
    return x.shape[d] if -x.ndim <= d < x.ndim else 1


def slices(writer: Writer, x: torch.Tensor) -> str:
    d = dim(writer, x.ndim)
    count, size = writer.random.randint(1, 3), size_at(x, d)
    sections = f"[1, {size - 1}]"
    call = writer.pick(
        f".split({count}, {d})",
        f".chunk({count}, {d})",
        f".unbind({d})",
        f".split({sections}, {d})",
        f".tensor_split({writer.pick(str(count), sections)}, {d})",
        writer.pick(f".hsplit({count})", f".vsplit({count})", f".dsplit({count})"),
    )
    return f"{call}[{writer.random.choice((0, 0, -1, 1))}]"


def order(writer: Writer, rank: int) -> str:
    dims = writer.random.sample(range(rank), rank)
    return ", ".join(str(d - rank if writer.chance(0.2) else d) for d in dims) or "()"


def index(writer: Writer, x: torch.Tensor) -> str:
    """A basic index: integers, slices, None, Ellipsis."""
    items = [part(writer, size) for size in x.shape[: writer.random.randint(0, x.ndim)]]
    if writer.chance(0.2):
        items.insert(writer.random.randint(0, len(items)), "None")
    if writer.chance(0.2) or not items:
        items.insert(writer.random.randint(0, len(items)), "...")
    if writer.chance(0.02):
        items.append("0")
    return ", ".join(items)


def part(writer: Writer, size: int) -> str:
    draw = writer.random.random()
    if draw < 0.35:
        reach = size if writer.chance(0.03) else max(size - 1, 0)
        number = str(writer.random.randint(-size if size else 0, reach))
        return f"T.tensor({number})" if writer.chance(0.2) else number
    if draw < 0.5:
        return ":"
    start = writer.pick("", "", "0", "1", "-1", "-2", "2")
    stop = writer.pick("", "", "1", "2", "3", "-1", "9")
    step = writer.pick("", "", ":", ":1", ":2", ":3")
    return f"{start}:{stop}{step}"


def sizes(writer: Writer, x: torch.Tensor) -> str:
    """A shape of as many elements, now and then with -1 or wrong."""
    rest, out = x.numel(), []
    for _ in range(writer.random.randint(0, 2)):
        fits = [d for d in range(1, rest + 1) if rest % d == 0] or [1]
        out.append(writer.random.choice(fits))
        rest //= out[-1]
    if rest != 1 or not out:
        out.insert(writer.random.randint(0, len(out)), rest)
    if writer.chance(0.3):
        out[writer.random.randrange(len(out))] = -1
    if writer.chance(0.02):
        out.append(2)
    return ", ".join(map(str, out))


def expanded(writer: Writer, x: torch.Tensor) -> str:
    out = [
        writer.random.randint(1, 3) if n == 1 else (-1 if writer.chance(0.3) else n)
        for n in x.shape
    ]
    while writer.chance(0.3) and len(out) < 4:
        out.insert(0, writer.random.randint(1, 2))
    if out and writer.chance(0.03):
        out[-1] = 5
    return ", ".join(map(str, out)) or "()"


def operand(writer: Writer, x: torch.Tensor) -> str:
    """A number, or a tensor that more or less fits."""
    if writer.chance(0.35):
        return writer.pick(*NUMBERS)
    if writer.chance(0.05):
        return writer.tensor(lambda y: not races(x, y)) or "2"
    fits = writer.tensor(lambda y: y.shape == x.shape and y.dtype == x.dtype)
    if fits is None or writer.chance(0.2):
        fits = writer.tensor(lambda y: broadcasts(y.shape, x.shape))
    if fits is None or races(x, writer.at(fits)):
        return writer.pick(*NUMBERS)
    return f"{fits} * 0.5" if writer.chance(0.2) else fits


def races(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True where PyTorch would read elements of y after it has written them through x."""
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    return (x.shape, x.stride(), x.storage_offset()) != (y.shape, y.stride(), y.storage_offset())


def broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return len(shape) <= len(to) and all(
        n in {1, m} for n, m in zip(reversed(shape), reversed(to), strict=False)
    )


def result(writer: Writer) -> str | None:
    """An operator whose result is no view."""
    name = writer.tensor()
    if name is None:
        return None
    x = writer.at(name)
    safe = name if x.is_contiguous() else name + CONTIGUOUS
    other = operand(writer, x)
    if other in writer.names and not writer.at(other).is_contiguous():
        other += CONTIGUOUS
    mask = f"{safe} > 0"
    body = writer.pick(
        f"{safe} * {other}", f"{safe} + {other}", f"{safe} - {other}",
        f"{safe}.sin()", f"{safe}.tanh()", f"{safe}.sigmoid()", f"{safe}.sum()",
        f"{safe}.clone()", f"{name}{CONTIGUOUS}", f"{safe}.to(T.float64)",
        f"{safe}[{mask}]", f"{safe}[[0, -1]]",
        f"T.cat([{safe}, {safe}])", f"T.where({mask}, {safe}, {other})",
    )  # fmt: skip
    return f"{writer.fresh()} = {body}"


def write(writer: Writer) -> str | None:
    """An in-place operator."""
    name = writer.tensor()
    if name is None:
        return None
    x = writer.at(name)
    other = operand(writer, x)
    number = writer.pick(*NUMBERS)
    alpha = "" if x.dtype == torch.bool else ", alpha=2"
    return writer.pick(
        f"{name} += {other}", f"{name} -= {other}", f"{name} *= {other}", f"{name} /= {number}",
        f"{name}.add_({other})", f"{name}.mul_({other})", f"{name}.sub_({other})",
        f"{name}.fill_({number})", f"{name}.zero_()", f"{name}.copy_({tensor_like(writer, x)})",
        f"{name}.tanh_()", f"{name}.neg_()",
        f"{name}.clamp_(-1, 1)", f"{name}.masked_fill_({name} > 0, {number})",
        f"{name}.add_({other}{alpha})", f"{name}{viewed(writer, x)}.mul_({number})",
    )  # fmt: skip


def tensor_like(writer: Writer, x: torch.Tensor) -> str:
    fits = writer.tensor(lambda y: broadcasts(y.shape, x.shape))
    if fits and races(x, writer.at(fits)) and writer.chance(0.8):
        fits = None
    return fits or f"T.ones({list(x.shape)})"


def put(writer: Writer) -> str | None:
    """`x[...] = y` and its like."""
    name = writer.tensor()
    if name is None:
        return None
    x = writer.at(name)
    where = index(writer, x)
    try:
        target = x.detach()[tuple(eval(f"S[{where}]", {"S": Slicer(), "T": torch}))]
    except (IndexError, ValueError):
        target = x.detach()
    other = operand(writer, target)
    number = writer.pick(*NUMBERS)
    row = operand(writer, x.detach()[:1] if x.ndim else x)
    rows = writer.pick("[0, -1]", "T.tensor([0])", "[0]", "T.tensor([[0, -1]])")
    return writer.pick(
        f"{name}[{where}] = {other}", f"{name}[{where}] = {other}", f"{name}[{where}] = {number}",
        f"{name}[{where}] += {other}", f"{name}[{where}] *= {number}",
        f"{name}[{name} > 0] = {number}", f"{name}[{rows}] = {number}", f"{name}[{rows}] = {row}",
        f"{name}[..., {rows}] = {number}", f"{name}[{rows}] += {number}",
    )  # fmt: skip


class Slicer:
    """`Slicer()[index]` is the index, always as a tuple."""

    def __getitem__(self, item: object) -> tuple[object, ...]:
        return item if isinstance(item, tuple) else (item,)


def twin(writer: Writer) -> str | None:
    """Another name of the same memory without gradient, or a swap of memory."""
    name = writer.tensor()
    if name is None:
        return None
    fits = writer.tensor(
        lambda y: y.dtype == writer.at(name).dtype and y.shape == writer.at(name).shape
    )
    return writer.pick(
        f"{writer.fresh()} = {name}.detach()", f"{writer.fresh()} = {name}.data",
        f"{name}.data.mul_(2)", f"{name}.detach().add_(1)",
        f"{name}.data = {fits}.data" if fits else f"{name}.data.zero_()",
        f"{name}.data = {fits}.detach().contiguous().clone()" if fits else f"{name}.data.zero_()",
    )  # fmt: skip


def flag(writer: Writer) -> str | None:
    name = writer.tensor(lambda x: x.dtype in FLOATS or writer.chance(0.1))
    if name is None:
        return None
    return writer.pick(
        f"{name}.retain_grad()", f"{name}.requires_grad_()", f"{name}.requires_grad_()",
        f"{name}.requires_grad_(False)", f"{name}.grad = None",
    )  # fmt: skip


def backward(writer: Writer) -> str | None:
    name = writer.tensor(lambda x: x.dtype in FLOATS and (x.requires_grad or writer.chance(0.05)))
    if name is None:
        return None
    keep = writer.pick("", "retain_graph=True", "retain_graph=True")
    return writer.pick(
        f"({name} * {name}).sum().backward({keep})", f"{name}.sum().backward({keep})",
        f"{name}.backward(T.ones_like({name}){', ' + keep if keep else ''})",
    )  # fmt: skip


def gradient(writer: Writer) -> str | None:
    """A gradient that has a gradient itself, with regard to one of the tensors.

    Not of squares: PyTorch's keep the operand for a second gradient that does not need it.
    """
    wanted = writer.tensor(lambda x: x.dtype in FLOATS and x.requires_grad)
    name = writer.tensor(lambda x: x.dtype in FLOATS and x.requires_grad)
    if wanted is None or name is None or any(".data" in line for line in writer.lines):
        return None  # a write through `.data` shows in what PyTorch has saved
    loss = writer.pick(f"({name} ** 3).sum()", f"{name}.sin().sum()", f"({name} * {name}).sum()")
    found = f"T.autograd.grad({loss}, [{wanted}], create_graph=True)[0]"
    return f"{writer.fresh()} = {found}{CONTIGUOUS}.clone()"


def cast(writer: Writer) -> str | None:
    """A cast to another dtype, or to the tensor's own."""
    name = writer.tensor()
    kind = writer.pick("float32", "float64", "int64", "int32", "uint8", "bfloat16")
    if name is None:
        return None
    safe = name if kind in {"float32", "float64", "bfloat16"} else f"{name}.detach()"
    return f"{writer.fresh()} = {safe}{CONTIGUOUS}.to(T.{kind})"
