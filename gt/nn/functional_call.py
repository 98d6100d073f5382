"""`functional_call`: a module's forward with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gt._core import Tensor
from gt.nn.module import Module

Tensors: TypeAlias = Mapping[str, Tensor]
Argument: TypeAlias = Any  # of the module's forward


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Argument = None,
    kwargs: Mapping[str, Argument] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Argument:
    """Calls a module with tensors in place of its parameters and buffers; the module does not
    change.

    Args:
        module: the module whose forward is called.
        parameter_and_buffer_dicts: tensors by the names in `named_parameters` and `named_buffers`;
            or several such dictionaries.
        args: the forward's arguments, a tuple, or the only one.
        kwargs: the forward's keyword arguments.
        tie_weights: True gives other names of a given parameter the same tensor.
        strict: True requires every parameter and buffer.

    Raises:
        KeyError: a name that the module does not have, or with `strict` a missing one.
    """
    dicts = parameter_and_buffer_dicts
    tensors: dict[str, Tensor] = {}
    for one in [dicts] if isinstance(dicts, Mapping) else dicts:
        tensors.update(one)
    own: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    unknown = sorted(tensors.keys() - own.keys())
    missing = sorted(own.keys() - tensors.keys()) if strict else []
    if unknown or missing:
        raise KeyError(f"unexpected names {unknown}, missing names {missing}")
    replaced = dict(tensors)
    if tie_weights:
        by_tensor = {id(own[name]): tensor for name, tensor in tensors.items()}
        replaced |= {
            name: by_tensor[id(tensor)] for name, tensor in own.items() if id(tensor) in by_tensor
        }
        replaced |= tensors
    before = [_replace(module, name, tensor) for name, tensor in replaced.items()]
    try:
        arguments = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*arguments, **(kwargs or {}))
    finally:
        for table, name, tensor in before:
            table[name] = tensor


def _replace(
    module: Module, name: str, tensor: Tensor
) -> tuple[dict[str, Any], str, Tensor | None]:
    """Replaces a tensor of the module; returns its table, its name there, and the former tensor."""
    path, _, last = name.rpartition(".")
    owner: Any = module
    for part in path.split(".") if path else []:
        owner = getattr(owner, part)
    tables: tuple[dict[str, Any], ...] = (vars(owner)["_parameters"], vars(owner)["_buffers"])
    table = tables[0] if last in tables[0] else tables[1]
    before = table[last]
    table[last] = tensor
    return table, last, before
