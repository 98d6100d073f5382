"""Gradient checkpointing without a changed line of the model: its blocks run again in backward."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from gt.guava import console
from gt.guava.library import Library, Model

__all__ = ["recomputed"]

BLOCKS_MIN = 2  # number of consecutive modules of one class: a stack of layers


@contextlib.contextmanager
def recomputed(model: Model, library: Library) -> Iterator[list[str]]:
    """Inside the block, the blocks of a model store no activations.

    Blocks are the modules of one class in a ModuleList or Sequential; nested ones do not count. A
    model without blocks is unchanged, and a message says so.

    Yields:
        Paths of the blocks.
    """
    checkpoint = library.module.utils.checkpoint.checkpoint
    blocks = _blocks("", model)
    before = [block.__dict__.get("forward") for _, block in blocks]
    for _, block in blocks:
        block.forward = _checkpointed(block.forward, checkpoint)
    if not blocks:
        console.say("gradient_checkpointing: the model has no list of like blocks; nothing changes")
    try:
        yield [path for path, _ in blocks]
    finally:
        for (_, block), forward in zip(blocks, before, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward


def _checkpointed(forward: Any, checkpoint: Any) -> Any:  # noqa: ANN401 - of either library
    @functools.wraps(forward)
    def call(*arguments: object, **keywords: object) -> object:
        return checkpoint(forward, *arguments, use_reentrant=False, **keywords)

    return call


def _blocks(path: str, module: Model) -> list[tuple[str, Model]]:
    """Members of the outermost stacks."""
    children = [(f"{path}.{name}" if path else name, one) for name, one in module.named_children()]
    is_list = type(module).__name__ in {"ModuleList", "Sequential"}
    classes = [type(one) for _, one in children if any(True for _ in one.children())]
    alike = {one for one in classes if classes.count(one) >= BLOCKS_MIN} if is_list else set()
    blocks: list[tuple[str, Model]] = []
    for inner, child in children:
        blocks += [(inner, child)] if type(child) in alike else _blocks(inner, child)
    return blocks
