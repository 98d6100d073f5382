"""Derivatives of functions: products with vectors, Jacobians and Hessians, by passes over the tape.

A forward product `jvp` is the derivative of `vjp` by its cotangent (the double-backward trick), as
there is no forward mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gt
from gt._core import Tensor
from gt.autograd.grad_mode import enable_grad
from gt.autograd.passes import grad
from gt.compat import misses
from gt.errors import InvalidType, InvalidUse, NotSupported

Tensors: TypeAlias = Tensor | tuple[Tensor, ...]
Function: TypeAlias = Callable[..., Any]
Nested: TypeAlias = Any  # a tensor, or tuples of tensors

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def vjp(
    func: Function,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """The outputs of `func`, and the product of `v` with its Jacobian.

    Args:
        func: takes the inputs, returns a tensor or a tuple of them.
        inputs: a tensor or a tuple of them.
        v: of the outputs' shapes; may be left out where there is one output of one element.
        create_graph: record the product, for derivatives of it.
        strict: raise for an output that does not depend on an input, instead of giving zeros.

    Raises:
        InvalidUse: `v` does not fit, or `strict` finds independence.
    """
    call = _Call("vjp", func, inputs, create_graph=create_graph, strict=strict)
    with enable_grad():
        outputs = call.outputs()
        vectors = _vectors("vjp", v, outputs, "user-provided function")
        products = call.gradients(outputs, vectors, call.inputs, create_graph=create_graph)
    return call.shown(outputs, of_outputs=True), call.shown(products)


def jvp(
    func: Function,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """The outputs of `func`, and the product of its Jacobian with `v`, by two backward passes.

    Args:
        func: takes the inputs, returns a tensor or a tuple of them.
        inputs: a tensor or a tuple of them.
        v: of the inputs' shapes; may be left out where there is one input of one element.
        create_graph: record the product, for derivatives of it.
        strict: raise for an output that does not depend on an input, instead of giving zeros.

    Raises:
        InvalidUse: `v` does not fit, or `strict` finds independence.
    """
    call = _Call("jvp", func, inputs, create_graph=create_graph, strict=strict)
    vectors = _vectors("jvp", v, call.inputs, "input")
    with enable_grad():
        outputs = call.outputs()
        seeds = [gt.zeros_like(x).requires_grad_() for x in outputs]
        products = call.gradients(outputs, seeds, call.inputs, create_graph=True)
        gradients = call.gradients(
            products, vectors, seeds, create_graph=create_graph, of_seeds=True
        )
    return call.shown(outputs, of_outputs=True), call.shown(gradients, of_outputs=True)


def jacobian(
    func: Function,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Nested:
    """The Jacobian of `func`: its shape is the output's followed by the input's.

    It is a tensor for one input and one output; tuples of inputs or outputs give tuples, the outer
    one for the outputs. It takes a pass for each element of the outputs.

    Args:
        func: takes the inputs, returns a tensor or a tuple of them.
        inputs: a tensor or a tuple of them.
        create_graph: record the result, for derivatives of it.
        strict: raise for an output that does not depend on an input, instead of giving zeros.
        vectorize: accepted without effect: the values are equal.
        strategy: only "reverse-mode".

    Raises:
        NotSupported: another strategy.
        InvalidUse: `strict` finds independence.
    """
    del vectorize
    if strategy != "reverse-mode":
        raise NotSupported(f"jacobian: the strategy {strategy!r}; use 'reverse-mode'")
    call = _Call("jacobian", func, inputs, create_graph=create_graph, strict=strict)
    with enable_grad():
        outputs = call.outputs()
        rows = [_rows(call, output, create_graph=create_graph) for output in outputs]
    shown = tuple(row if call.takes_several else row[0] for row in rows)
    return shown if call.gives_several else shown[0]


def hessian(
    func: Function,
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Nested:
    """The Hessian of `func`, which returns one element.

    Args:
        func: takes the inputs, returns a tensor of one element.
        inputs: a tensor or a tuple of them.
        create_graph: record the result, for derivatives of it.
        strict: raise for independence, instead of giving zeros.
        vectorize: accepted without effect: the values are equal.
        outer_jacobian_strategy: only "reverse-mode".

    Raises:
        InvalidUse: `func` returns something else, or `strict` finds independence.
    """
    takes_several = isinstance(inputs, tuple)

    def derivative(*points: Tensor) -> Nested:
        arguments = points if takes_several else points[0]
        call = _Call("hessian", func, arguments, create_graph=True, strict=strict, fresh=False)
        outputs = call.outputs()
        _check_one_element("hessian", outputs)
        gradients = call.gradients(outputs, [gt.ones_like(outputs[0])], points, create_graph=True)
        return tuple(gradients) if takes_several else gradients[0]

    return jacobian(derivative, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(
    func: Function,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """The output of `func`, of one element, and the product of `v` with its Hessian.

    Args:
        func: takes the inputs, returns a tensor of one element.
        inputs: a tensor or a tuple of them.
        v: of the inputs' shapes; may be left out where there is one input of one element.
        create_graph: record the product, for derivatives of it.
        strict: raise for independence, instead of giving zeros.

    Raises:
        InvalidUse: `func` returns something else, or `v` does not fit.
    """
    call = _Call("vhp", func, inputs, create_graph=create_graph, strict=strict)
    vectors = _vectors("vhp", v, call.inputs, "input")
    with enable_grad():
        outputs = call.outputs()
        _check_one_element("vhp", outputs)
        seeds = [gt.ones_like(outputs[0])]
        first = call.gradients(outputs, seeds, call.inputs, create_graph=True)
        products = call.gradients(first, vectors, call.inputs, create_graph=create_graph)
    return call.shown(outputs, of_outputs=True), call.shown(products)


def hvp(
    func: Function,
    inputs: Tensors,
    v: Tensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:
    """The output of `func`, and the product of its Hessian with `v`: vhp, since the Hessian is
    symmetric.
    """
    return vhp(func, inputs, v, create_graph, strict)


class _Call:
    """A function and its inputs, as tensors that require gradients."""

    def __init__(
        self,
        name: str,
        func: Function,
        inputs: Tensors,
        *,
        create_graph: bool,
        strict: bool,
        fresh: bool = True,
    ) -> None:
        self.name, self.func, self.strict = name, func, strict
        self.takes_several = isinstance(inputs, tuple)
        self.gives_several = False
        self.create_graph = create_graph
        listed = _tensors(name, inputs, "inputs")
        fresh_leaf = functools.partial(_leaf, recorded=create_graph)
        self.inputs = [fresh_leaf(x) for x in listed] if fresh else listed

    def outputs(self) -> list[Tensor]:
        """The function's results as a list of tensors."""
        returned = self.func(*self.inputs)
        self.gives_several = isinstance(returned, tuple)
        return _tensors(self.name, returned, "outputs of the user-provided function")

    def gradients(
        self,
        outputs: Sequence[Tensor],
        seeds: Sequence[Tensor],
        inputs: Sequence[Tensor],
        *,
        create_graph: bool,
        of_seeds: bool = False,
    ) -> list[Tensor]:
        """Gradients of the outputs, zeros where there is no dependence."""
        pairs = [(x, seed) for x, seed in zip(outputs, seeds, strict=True) if x.requires_grad]
        if len(pairs) < len(outputs) and self.strict and not of_seeds:
            raise InvalidUse(
                "The output of the user-provided function is independent of the input in "
                f"{self.name}; this is not allowed in strict mode."
            )
        results: Sequence[Tensor | None] = [None] * len(inputs)
        if pairs:
            results = grad(
                [x for x, _ in pairs],
                inputs,
                [seed for _, seed in pairs],
                retain_graph=True,
                create_graph=create_graph,
                allow_unused=True,
            )
        if self.strict and any(x is None for x in results):
            place = [x is None for x in results].index(True)
            raise InvalidUse(
                f"Output of the user-provided function is independent of input {place} in "
                f"{self.name}; this is not allowed in strict mode."
            )
        pairs_of_inputs = zip(results, inputs, strict=True)
        return [gt.zeros_like(x) if item is None else item for item, x in pairs_of_inputs]

    def shown(self, tensors: Sequence[Tensor], *, of_outputs: bool = False) -> Tensors:
        """The tensors in the user's form: a tuple or one tensor."""
        results = tuple(x if self.create_graph else x.detach() for x in tensors)
        several = self.gives_several if of_outputs else self.takes_several
        return results if several else results[0]


def _rows(call: _Call, output: Tensor, *, create_graph: bool) -> tuple[Tensor, ...]:
    """The Jacobian of one output for each input, by a pass for each element."""
    rows: list[list[Tensor]] = []
    flat = output.reshape(-1)
    for place in range(flat.numel()):
        seeds = [gt.ones_like(flat[place])]
        rows.append(call.gradients([flat[place]], seeds, call.inputs, create_graph=create_graph))
    tensors = []
    for place, x in enumerate(call.inputs):
        shape = (*output.shape, *x.shape)
        if rows:
            whole = gt.stack([row[place] for row in rows]).reshape(shape)
        else:
            whole = gt.zeros(shape, dtype=x.dtype)
        tensors.append(whole if create_graph else whole.detach())
    return tuple(tensors)


def _leaf(x: Tensor, *, recorded: bool) -> Tensor:
    """The tensor as a new leaf; with its history if derivatives of the result are wanted."""
    if recorded and x.requires_grad:
        return x.view_as(x)
    return x.detach().requires_grad_()


def _tensors(name: str, given: object, what: str) -> list[Tensor]:
    listed: list[Any] = list(given) if isinstance(given, tuple) else [given]
    for place, x in enumerate(listed):
        if not isinstance(x, Tensor):
            one = f"Value at index {place} of the tuple" if isinstance(given, tuple) else "It"
            raise InvalidType(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but got "
                f"{type(given).__name__}. {one} has type {type(x).__name__}."
            )
    return listed


def _vectors(name: str, v: Tensors | None, others: Sequence[Tensor], what: str) -> list[Tensor]:
    """`v` as a list that fits `others`."""
    if v is None:
        if len(others) != 1 or others[0].numel() != 1:
            raise InvalidUse(
                f"The vector v can only be None if the {what} is a single Tensor with a single "
                f"element ({name})."
            )
        return [gt.ones_like(others[0])]
    vectors = _tensors(name, v, "v")
    if len(vectors) != len(others):
        raise InvalidUse(
            f"v is a tuple of invalid length: should be {len(others)} but got {len(vectors)}."
        )
    for place, (vector, other) in enumerate(zip(vectors, others, strict=True)):
        if vector.shape != other.shape:
            raise InvalidUse(
                f"Entry {place} in v has invalid size: should be {tuple(other.shape)} but got "
                f"{tuple(vector.shape)}."
            )
    return vectors


def _check_one_element(name: str, outputs: Sequence[Tensor]) -> None:
    if len(outputs) != 1:
        raise InvalidUse(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise InvalidUse(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
