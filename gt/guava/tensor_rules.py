"""Dimension in which each parameter is cut in a tensor-parallel group, found from a model's tree.

A matrix with cut outputs is followed by one with cut inputs, so that a block exchanges one sum. No
rule changes a result: a parameter without a rule stays whole, and a message says so once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from gt.guava import console
from gt.guava.library import Model, Value

__all__ = ["Cut", "cuts"]

NAMES_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Cut:
    """Dimension that cuts a parameter, in a number of equal blocks if several matrices
    are fused.
    """

    dim: int
    blocks: int | None = None


COLUMNS, FUSED, ROWS = "columns", "fused columns", "rows"

# Role of a linear layer by the end of its path; the first match applies.
LAYERS = [
    (re.compile(rf"(^|.*[._])({names})$"), role)
    for names, role in (
        (r"c_attn|qkv|qkv_proj|in_proj|Wqkv", FUSED),
        (r"q|k|v|query|key|value|query_key_value|[qkv]_proj|[qkv]_lin", COLUMNS),
        (r"c_fc|fc1|up|gate|up_proj|gate_proj|gate_up_proj|w1|w3|wi|wi_[01]|lin1|linear1", COLUMNS),
        (r"(query|key|value)_proj|fc_in|ffn|dense_h_to_4h|intermediate\.dense", COLUMNS),
        (r"c_proj|o_proj|out_proj|out_lin|fc2|fc_out|down|down_proj|w2|wo|lin2|linear2", ROWS),
        (r"ffn_output|output\.dense|dense_4h_to_h|(Self|EncDec)Attention\.o", ROWS),
        (r"(self_attn|attention|self_attention)\.(out|dense)", ROWS),
    )
]
POSITIONS = re.compile(r"(^|.*[._])(wpe|pos\w*|embed_positions|token_type\w*|\w+_token)$")


def cuts(model: Model) -> dict[str, Cut]:
    """The parameters that a tensor-parallel group shares, by path."""
    rules = dict(_found(model))
    unknown = [
        path for path, parameter in model.named_parameters() if parameter.ndim > 1
        and path not in rules and not POSITIONS.match(path.removesuffix(".weight"))
    ]  # fmt: skip
    if unknown:
        more = f" and {len(unknown) - NAMES_SHOWN} more" * (len(unknown) > NAMES_SHOWN)
        console.say(
            f"whole on each worker, as no tensor-parallel rule knows them: "
            f"{', '.join(unknown[:NAMES_SHOWN])}{more}"
        )
    return rules


def _found(model: Model) -> Iterator[tuple[str, Cut]]:
    """Cuts of all parameters; rules by name take precedence, so they come last."""
    modules = dict(model.named_modules())
    tables = {one.num_embeddings for one in modules.values() if _is(one, "Embedding")}
    for path, module in modules.items():
        if _is(module, "Sequential"):
            yield from _chain(path, module)
    for path, module in modules.items():
        if _is(module, "Embedding") and not POSITIONS.match(path):
            yield _joined(path, "weight"), Cut(0)
        elif _is(module, "MultiheadAttention"):
            yield from _attention(path, module)
        elif _is(module, "Linear", "Conv1D", "NonDynamicallyQuantizableLinear"):
            role = next((role for names, role in LAYERS if names.match(path)), None)
            if role is None and module.weight.shape[0] in tables:
                role = COLUMNS  # the head's outputs are the rows of a table
            if role is not None:
                yield from _layer(path, module, role)


def _chain(path: str, chain: Model) -> Iterator[tuple[str, Cut]]:
    """Cuts of a Sequential's linear layers: the first of a pair cuts outputs, the second inputs."""
    layers = [(name, one) for name, one in chain.named_children() if _is(one, "Linear")]
    for (first, columns), (second, rows) in zip(layers[::2], layers[1::2], strict=False):
        yield from _layer(_joined(path, first), columns, COLUMNS)
        yield from _layer(_joined(path, second), rows, ROWS)


def _attention(path: str, module: Model) -> Iterator[tuple[str, Cut]]:
    """Attention is cut on heads: each of the query's, key's and value's outputs."""
    if module.in_proj_weight is not None:
        yield _joined(path, "in_proj_weight"), Cut(0, 3)
    else:
        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
            yield _joined(path, name), Cut(0)
    if module.in_proj_bias is not None:
        yield _joined(path, "in_proj_bias"), Cut(0, 3)


def _layer(path: str, layer: Model, role: str) -> Iterator[tuple[str, Cut]]:
    """The cuts of one layer; its weight is [out, in], for a Conv1D [in, out]."""
    outputs, inputs = (1, 0) if _is(layer, "Conv1D") else (0, 1)
    blocks = 3 if role == FUSED and not layer.weight.shape[outputs] % 3 else None
    yield _joined(path, "weight"), Cut(inputs) if role == ROWS else Cut(outputs, blocks)
    bias: Value | None = layer.bias
    if bias is not None and role != ROWS:
        yield _joined(path, "bias"), Cut(0, blocks)


def _is(module: Model, *names: str) -> bool:
    """True if a module's class has one of these names, in either library."""
    return any(one.__name__ in names for one in type(module).__mro__)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
