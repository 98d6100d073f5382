"""einops on GT's tensors: a backend in its registry, and its layers as GT's modules.

einops is not imported here: import_hooks.py calls these when a program imports it.
"""

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import gt
from gt._core import Tensor

REDUCTIONS = {"min": "amin", "max": "amax", "sum": "sum", "mean": "mean"}
ONE_BY_ONE = ("any", "all", "prod")  # reductions of one dimension at a time


class Operations:
    """The operations that einops asks of a backend, in GT's operators."""

    framework_name = "gt"

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:  # noqa: ANN401 - numpy's
        return gt.from_numpy(x)

    def to_numpy(self, x: Tensor) -> Any:  # noqa: ANN401
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return gt.arange(start, stop, dtype=gt.int64)

    def reduce(self, x: Tensor, operation: str, reduced_axes: tuple[int, ...]) -> Tensor:
        if operation in REDUCTIONS:
            reduced: Tensor = getattr(x, REDUCTIONS[operation])(dim=tuple(reduced_axes))
            return reduced
        if operation not in ONE_BY_ONE:
            raise NotImplementedError("Unknown reduction ", operation)
        for dim in sorted(reduced_axes, reverse=True):
            x = getattr(x, operation)(dim=dim)
        return x

    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return x.permute(axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return gt.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        sizes = [-1] * n_axes
        for place, length in pos2len.items():
            x = x.unsqueeze(place)
            sizes[place] = length
        return x.expand(sizes)

    def tile(self, x: Tensor, repeats: tuple[int, ...]) -> Tensor:
        return x.repeat(repeats)

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return gt.cat(tensors, dim=axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return gt.einsum(pattern, *x)


def register(module: types.ModuleType) -> None:
    """Adds a backend to `einops._backends`, which finds the subclasses of its abstract backend."""
    bases = (Operations, module.AbstractBackend)
    vars(module)["GtBackend"] = type("GtBackend", bases, {})  # einops holds only weak references


def add_layers(module: types.ModuleType) -> None:
    """Add `einops.layers.gt` to `einops.layers`: einops' layers, as modules of GT."""
    from gt import nn

    layers = types.ModuleType(f"{module.__name__}.gt", "einops' layers as modules of GT.")
    sys.modules[f"{module.__name__}.gt"] = layers
    mix = importlib.import_module(f"{module.__name__}._einmix")._EinmixMixin  # noqa: SLF001
    for name, mixin, methods in (
        ("Rearrange", module.RearrangeMixin, {"forward": _rearrange}),
        ("Reduce", module.ReduceMixin, {"forward": _reduce}),
        ("EinMix", mix, _MIX),
    ):
        members = {**methods, "__module__": layers.__name__, "__doc__": mixin.__doc__}
        vars(layers)[name] = type(name, (mixin, nn.Module), members)
    vars(module)["gt"] = layers


def choose_layers(module: types.ModuleType, load: Callable[[types.ModuleType], None]) -> None:
    """Makes `einops.layers.torch` GT's layers for a file that uses GT, and torch's for others.

    Args:
        module: A module without names of its own: each import from it checks the importing file.
        load: A function that fills a module with torch's layers, which imports torch.
    """

    @functools.cache
    def theirs() -> types.ModuleType:
        assert module.__spec__ is not None, "an import makes it"
        loaded = importlib.util.module_from_spec(module.__spec__)
        load(loaded)
        return loaded

    def layer(name: str) -> object:
        if name.startswith("__"):  # attributes that the import system reads
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        is_ours = _uses_gt(sys._getframe(1).f_globals)  # noqa: SLF001 - the importing file
        return getattr(importlib.import_module("einops.layers.gt") if is_ours else theirs(), name)

    vars(module)["__getattr__"] = layer


def _uses_gt(names: dict[str, object]) -> bool:
    """True if a file with these globals uses GT: torch is not among them.

    A file that uses neither counts as torch's if the program has imported torch.
    """
    homes = {
        str(getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", ""))
        for value in names.values()
    }
    packages = {home.partition(".")[0] for home in homes}
    return "torch" not in packages and ("gt" in packages or "torch" not in sys.modules)


def _rearrange(self: Any, input: Tensor) -> Tensor:  # noqa: ANN401 - a layer of einops
    result: Tensor = sys.modules["einops"].rearrange(input, self.pattern, **self.axes_lengths)
    return result


def _reduce(self: Any, input: Tensor) -> Tensor:  # noqa: ANN401 - a layer of einops
    options = (self.pattern, self.reduction)
    result: Tensor = sys.modules["einops"].reduce(input, *options, **self.axes_lengths)
    return result


def _create_parameters(
    self: Any,  # noqa: ANN401 - a layer of einops
    weight_shape: list[int],
    weight_bound: float,
    bias_shape: list[int] | None,
    bias_bound: float,
) -> None:
    """Makes EinMix's weight and bias, uniform within their bounds."""
    for name, shape, bound in (
        ("weight", weight_shape, weight_bound),
        ("bias", bias_shape, bias_bound),
    ):
        drawn = None if shape is None else gt.empty(*shape).uniform_(-bound, bound)
        self.register_parameter(name, None if drawn is None else gt.nn.Parameter(drawn))


def _create_rearrange_layers(
    self: Any,  # noqa: ANN401 - a layer of einops
    pre_reshape_pattern: str | None,
    pre_reshape_lengths: dict[str, int] | None,
    post_reshape_pattern: str | None,
    post_reshape_lengths: dict[str, int] | None,
) -> None:
    """Sets the layers that EinMix runs before and after its product; None for no layer."""
    layer = vars(sys.modules[type(self).__module__])["Rearrange"]
    for name, pattern, lengths in (
        ("pre_rearrange", pre_reshape_pattern, pre_reshape_lengths),
        ("post_rearrange", post_reshape_pattern, post_reshape_lengths),
    ):
        setattr(self, name, None if pattern is None else layer(pattern, **(lengths or {})))


def _mix(self: Any, input: Tensor) -> Tensor:  # noqa: ANN401 - a layer of einops
    if self.pre_rearrange is not None:
        input = self.pre_rearrange(input)
    result = gt.einsum(self.einsum_pattern, input, self.weight)
    if self.bias is not None:
        result = result + self.bias
    return result if self.post_rearrange is None else self.post_rearrange(result)


_MIX = {
    "forward": _mix,
    "_create_parameters": _create_parameters,
    "_create_rearrange_layers": _create_rearrange_layers,
}
