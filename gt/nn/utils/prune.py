"""Pruning: a parameter `weight` becomes `weight_orig` times the buffer `weight_mask`.

What is pruned is computed before each forward by a hook; `remove` makes the zeros last.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import gt
from gt._core import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.nn.utils.convert_parameters import parameters_to_vector

T = TypeVar("T", bound=Module)
Self = TypeVar("Self", bound="BasePruningMethod")
Amount = int | float

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class BasePruningMethod(ABC):
    """A way to choose what is pruned: subclasses give `PRUNING_TYPE` and `compute_mask`.

    An object is the hook of the parameter that it was applied to.
    """

    PRUNING_TYPE = ""  # `unstructured`, `structured` or `global`
    _tensor_name: str

    def __call__(self, module: Module, _inputs: object) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask, of ones and zeros.

        Args:
            t: The importance of each element.
            default_mask: The mask before, of the same shape.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned parameter of `module`."""
        name = self._tensor_name
        original = cast("Tensor", getattr(module, f"{name}_orig"))
        return cast("Tensor", getattr(module, f"{name}_mask")).to(original.dtype) * original

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,  # noqa: ANN401 - the method's
        importance_scores: Tensor | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> BasePruningMethod:
        """Prune `module.name`, after what was pruned there before.

        Args:
            module: whose parameter it is.
            name: the parameter's name.
            args: of the method.
            importance_scores: of the parameter's shape, in place of its values.
            kwargs: of the method.

        Raises:
            AssertionError: scores of another shape.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        current = cast("Tensor", getattr(module, name))
        _check_scores(importance_scores, current, f"parameter {name} of {module}")
        scores = (current if importance_scores is None else importance_scores).detach()
        found = _find(module, name)
        if found is not None:
            key, known = found
            method = _joined(known, method)
            mask = method.compute_mask(scores, _mask_of(module, name).detach().clone())
            del module._forward_pre_hooks[key]
        else:
            mask = method.compute_mask(scores, gt.ones_like(scores))
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", cast("Parameter", current))
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self,
        t: Tensor,
        default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:
        """`t` with what this method chooses set to zero; no module is changed.

        Raises:
            AssertionError: scores of another shape.
        """
        _check_scores(importance_scores, t, "tensor t")
        scores = t if importance_scores is None else importance_scores
        before = gt.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Module) -> None:
        """Make the pruned value the parameter's own; the hook stays to be taken out."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        assert original is not None, name
        original.data = weight.detach()
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods of one parameter, one after the other."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add one at the end.

        Raises:
            TypeError: not a pruning method.
            ValueError: of another parameter.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. "
                f"Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method over what the others have left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        chosen = _left(method, t, default_mask)
        partial = method.compute_mask(t[chosen], default_mask=default_mask[chosen])
        mask = mask.clone()
        mask[chosen] = partial.to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing; makes the mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        return default_mask


class _Share(BasePruningMethod):
    """A number or a share of the elements, or channels."""

    def __init__(self, amount: Amount) -> None:
        self.amount: Amount = _checked_amount(amount)

    def _count(self, size: int) -> int:
        """How many of `size` are pruned."""
        if isinstance(self.amount, float):
            return round(self.amount * size)
        if self.amount > size:
            raise ValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={size}"
            )
        return self.amount


class _Unstructured(_Share):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        mask = default_mask.clone()
        if count == 0:
            return mask
        _, places = self._importance(t).reshape(-1).topk(count, largest=False)
        flat = mask.reshape(-1).clone()
        flat[places] = 0
        return flat.reshape(mask.shape)

    @abstractmethod
    def _importance(self, t: Tensor) -> Tensor:
        """Of each element; the least are pruned."""


class RandomUnstructured(_Unstructured):
    """Prunes elements at random.

    Args:
        amount: how many, or which share.
    """

    def _importance(self, t: Tensor) -> Tensor:
        return gt.rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the elements of the least absolute value.

    Args:
        amount: how many, or which share.
    """

    def _importance(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(_Share):
    PRUNING_TYPE = "structured"
    dim: int

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        count = self._count(size)
        if count == 0:
            return default_mask
        _, kept = self._importance(t).topk(size - count)
        channels = gt.zeros(size, dtype=t.dtype)
        channels[kept] = 1
        shape = [1] * t.ndim
        shape[self.dim] = size
        return channels.reshape(shape) * default_mask.to(t.dtype)  # [.., size, ..] * t's shape

    @abstractmethod
    def _importance(self, t: Tensor) -> Tensor:
        """Of each channel; the least are pruned."""


class RandomStructured(_Structured):
    """Prunes channels at random.

    Args:
        amount: how many, or which share.
        dim: the dimension whose indices are the channels.
    """

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _importance(self, t: Tensor) -> Tensor:
        return gt.rand(t.shape[self.dim])


class LnStructured(_Structured):
    """Prunes the channels of the least norm.

    Args:
        amount: how many, or which share.
        n: the norm, as `vector_norm`, and `matrix_norm` for `fro` and `nuc`, take it.
        dim: the dimension whose indices are the channels.
    """

    def __init__(self, amount: Amount, n: float | str, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def _importance(self, t: Tensor) -> Tensor:
        others = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        if self.n == "nuc":
            dims = others if len(others) == 2 else [-2, -1]
            nuclear: Tensor = gt.linalg.matrix_norm(t, "nuc", dims)
            return nuclear
        order = 2.0 if self.n == "fro" else self.n
        norms: Tensor = gt.linalg.vector_norm(t, order, others)
        return norms


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask that is given is zero.

    Args:
        mask: of the parameter's shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match "
                f"self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


# ---- functions ----


def identity(module: T, name: str) -> T:
    """Make the mask of `module.name` without pruning anything."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: T, name: str, amount: Amount) -> T:
    """Prune elements of `module.name` at random: how many, or which share of those left."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: T, name: str, amount: Amount, importance_scores: Tensor | None = None
) -> T:
    """Prune the elements of `module.name` of the least absolute value, or score."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: T, name: str, amount: Amount, dim: int) -> T:
    """Prune channels of `module.name` along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: T,
    name: str,
    amount: Amount,
    n: float | str,
    dim: int,
    importance_scores: Tensor | None = None,
) -> T:
    """Prune the channels of `module.name` along `dim` whose norm `n` is least."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,  # noqa: ANN401 - the method's
) -> None:
    """Prune several parameters as if they were one vector.

    Args:
        parameters: pairs of a module and a name.
        pruning_method: an unstructured one.
        importance_scores: by such a pair, in place of the values.
        kwargs: of the method.

    Raises:
        TypeError: no pairs, no dictionary, or a structured method.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, dict | None):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs, scores = list(parameters), importance_scores or {}
    tensors = [cast("Tensor", getattr(module, name)).detach() for module, name in pairs]
    importance = parameters_to_vector(
        scores.get(pair, tensor).detach() for pair, tensor in zip(pairs, tensors, strict=True)
    )
    masks = parameters_to_vector(
        cast("Tensor", getattr(module, f"{name}_mask", gt.ones_like(tensor)))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    )
    container, method = PruningContainer(), pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    mask = container.compute_mask(importance, masks)
    start = 0
    for (module, name), tensor in zip(pairs, tensors, strict=True):
        end = start + tensor.numel()
        custom_from_mask(module, name, mask[start:end].reshape(tensor.shape))
        start = end


def custom_from_mask(module: T, name: str, mask: Tensor) -> T:
    """Prune `module.name` where `mask`, of its shape, is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: T, name: str) -> T:
    """Make the pruned values of `module.name` its own, without mask and hook.

    Raises:
        ValueError: it is not pruned.
    """
    if (found := _find(module, name)) is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    key, method = found
    method.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter here or below is pruned."""
    hooks = (hook for below in module.modules() for hook in below._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)


def _find(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    """The hook of a pruned parameter, and its number."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def _joined(known: BasePruningMethod, method: BasePruningMethod) -> PruningContainer:
    """A container of both; one that is there already takes the new method."""
    container = known if isinstance(known, PruningContainer) else PruningContainer(known)
    container.add_pruning_method(method)
    return container


def _left(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:  # noqa: ANN401 - an index
    """What earlier methods have left for this one, as an index."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.ndim
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    dim = getattr(method, "dim", None)
    if dim is None:
        raise AttributeError(
            'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
        )
    if dim < -t.ndim:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
    index: list[Any] = [slice(None)] * t.ndim
    others: Sequence[int] = [d for d in range(t.ndim) if d != dim % t.ndim]
    index[dim] = mask.sum(others) != 0
    return tuple(index)


def _checked_amount(amount: object) -> Amount:
    """A number of elements, or a share of them."""
    checked: Amount
    if isinstance(amount, numbers.Integral):
        checked = int(amount)
    elif isinstance(amount, numbers.Real):
        checked = float(amount)
    else:
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if checked < 0 or (isinstance(checked, float) and checked > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a "
            "non-negative integer"
        )
    return checked


def _mask_of(module: Module, name: str) -> Tensor:
    return cast("Tensor", getattr(module, f"{name}_mask"))


def _check_scores(scores: Tensor | None, of: Tensor, what: str) -> None:
    if scores is not None and scores.shape != of.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, "
            f"got {scores.shape} vs {of.shape}"
        )


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
