"""Base of the pruning methods: a mask, the hook that applies it, and a container for several in
sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, cast

import gt
from gt._core import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class BasePruningMethod(ABC):
    """Base of the pruning methods: subclasses define `PRUNING_TYPE` and `compute_mask`.

    An object is the hook of the parameter to which it is applied.
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
            default_mask: The former mask, of the same shape.
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
        """Prune `module.name` further than before.

        Args:
            module: the module with the parameter.
            name: the parameter's name.
            args: arguments of the method.
            importance_scores: scores in the parameter's shape, in place of its values.
            kwargs: arguments of the method.

        Raises:
            AssertionError: scores of another shape.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        current = cast("Tensor", getattr(module, name))
        _check_scores(importance_scores, current, f"parameter {name} of {module}")
        scores = (current if importance_scores is None else importance_scores).detach()
        entry = find(module, name)
        if entry is not None:
            key, previous = entry
            method = _joined(previous, method)
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
        """`t` with the elements that this method selects set to zero; no module changes.

        Raises:
            AssertionError: scores of another shape.
        """
        _check_scores(importance_scores, t, "tensor t")
        scores = t if importance_scores is None else importance_scores
        before = gt.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Module) -> None:
        """Make the pruned value permanent; the hook is still to be removed."""
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
    """Several methods for one parameter, applied one after the other."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Append a method.

        Raises:
            TypeError: it is not a pruning method.
            ValueError: it is for another parameter.
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
        """The mask of the last method on the elements that the others have left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        chosen = _left(method, t, default_mask)
        partial = method.compute_mask(t[chosen], default_mask=default_mask[chosen])
        mask = mask.clone()
        mask[chosen] = partial.to(mask.dtype)
        return mask


def find(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    """The hook of a pruned parameter, and the hook's number."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def _joined(known: BasePruningMethod, method: BasePruningMethod) -> PruningContainer:
    """A container of both; an existing container gets the new method."""
    container = known if isinstance(known, PruningContainer) else PruningContainer(known)
    container.add_pruning_method(method)
    return container


def _left(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:  # noqa: ANN401 - an index
    """Index of the elements that earlier methods have left to this one."""
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


def _mask_of(module: Module, name: str) -> Tensor:
    return cast("Tensor", getattr(module, f"{name}_mask"))


def _check_scores(scores: Tensor | None, of: Tensor, what: str) -> None:
    if scores is not None and scores.shape != of.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, "
            f"got {scores.shape} vs {of.shape}"
        )
