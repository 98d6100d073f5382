"""Casts of an open autocast for functions that make several instructions and for operators without
a row; the casts of a row's instruction are made in gt._core.

The treatment of PyTorch's operators is data, gt/amp/policies.txt; only functions that have another
name than PyTorch's operator are named here, and those whose parts would be cast, unlike PyTorch's
single operator.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeAlias, TypeVar

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidUse

P = ParamSpec("P")
R = TypeVar("R")
Region: TypeAlias = tuple[int, _core.dtype, bool]
Words: TypeAlias = tuple[str, str]

FILE = pathlib.Path(__file__).with_name("policies.txt")
DEVICES = ("cpu", "cuda")
# Operator of PyTorch that a function of another name stands for.
OPERATOR_OF = {"cross_entropy": "cross_entropy_loss", "grid_sample": "grid_sampler"}
# Functions that are one operator in PyTorch, whose operands are not cast, but rows here whose
# operands would be.
WHOLE = frozenset({"mish", "logsigmoid", "exp2", "logit"})
# Compositions in GT as in PyTorch, with one part that PyTorch's list has under this name.
PARTS = frozenset({"inner", "max_pool3d", "sum_to_size"})
# Functions of rows that check their operands' dtypes themselves.
ASKING = frozenset({"rms_norm"})
REFUSED = """\
torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.
Many models use a sigmoid layer right before the binary cross entropy layer.
In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits
or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are
safe to autocast."""


def _read() -> dict[str, Words]:
    """PyTorch's treatment of each operator's operands on each type of device, read from
    policies.txt.
    """
    lines = FILE.read_text(encoding="utf-8").splitlines()
    parts = [line.split() for line in lines if not line.startswith("#")]
    return {name: (cpu, cuda) for name, cpu, cuda in parts}


_ROWS = {name for name, *_ in _core.op_table()}
POLICIES = _read()
_core.set_autocast_policies(POLICIES)


def policy(name: str) -> Words | None:
    """PyTorch's treatment of the operator behind a function; None if the function's parts are
    treated.
    """
    if name in PARTS:
        return None
    if name in WHOLE:
        return ("whole", "whole")
    return POLICIES.get(OPERATOR_OF.get(name, name))


def acts(name: str, region: Region) -> bool:
    """True if the region casts the operator's operands or replaces the operator."""
    words = POLICIES.get(name)
    return words is not None and words[region[0]] not in ("parts", "whole")


def entry(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """`function` as PyTorch's operator: within an autocast its operands are cast, but not those of
    the functions that it calls.
    """
    words = policy(name)
    is_row = OPERATOR_OF.get(name, name) in _ROWS and name not in ASKING
    if words is None or (is_row and "refused" not in words):
        return function
    return _entry(words, function)


def _entry(words: Words, function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        region = _core.autocast_region()
        if region is None:
            return function(*args, **named)
        return within(region, words, function, args, named)

    return called


def in_place(name: str, method: Callable[P, R]) -> Callable[P, R]:
    """`method`, which writes its first operand: none of its operands are cast, as in PyTorch."""
    return _entry(("whole", "whole"), method) if policy(name.removesuffix("_")) else method


def within(
    region: Region,
    words: Words,
    function: Callable[..., R],
    args: tuple[object, ...],
    named: Mapping[str, object],
) -> R:
    """Calls `function` within an autocast, with the treatment that `words` name.

    Raises:
        InvalidUse: the operator is unsafe there.
    """
    device, lower, _ = region
    word = words[device]
    if word == "parts":
        return function(*args, **named)
    if word == "refused":
        raise InvalidUse(REFUSED)
    # A dtype that the caller asks for takes precedence over a policy of float32.
    asked = any(isinstance(value, _core.dtype) for value in (*args, *named.values()))
    if word != "whole" and not (word == "float32" and asked):
        dtype = {"lower": lower, "float32": _core.float32}.get(word)
        dtype = dtype or _widest(lower, (*args, *named.values()))
        args = tuple([_cast(value, dtype) for value in args])
        named = {name: _cast(value, dtype) for name, value in named.items()}
    _core.set_autocast_region(None)
    try:
        return function(*args, **named)
    finally:
        _core.set_autocast_region(region)


def _cast(value: object, dtype: _core.dtype) -> object:
    if isinstance(value, Tensor):
        return _core.autocast_to(value, dtype)
    if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
        return [_cast(item, dtype) for item in value]
    return value


def _widest(lower: _core.dtype, values: tuple[object, ...]) -> _core.dtype:
    """The widest dtype of tensors, at least `lower`; float64 is ignored, as in PyTorch.

    Raises:
        InvalidUse: there is the other 16-bit dtype, before any tensor of float32.
    """
    widest = lower
    for value in values:
        items = value if isinstance(value, list | tuple) else (value,)
        for item in items:
            if not isinstance(item, Tensor):
                continue
            if item.dtype == _core.float32:
                widest = _core.float32
            elif item.dtype in (_core.float16, _core.bfloat16) and widest not in (
                item.dtype, _core.float32,
            ):  # fmt: skip
                raise InvalidUse("Unexpected floating ScalarType in at::autocast::prioritize")
    return widest
