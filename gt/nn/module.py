"""Module: a tree of parameters, buffers and child modules with a forward method.

Its parts are files below it, which know no modules: members.py has the tables, tree.py the
iterations, saved.py the state dictionaries, hooked.py the hooks. Nothing here emits instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import gt
from gt._core import Tensor
from gt.composite.casts import target_dtype
from gt.config.rules import Rule
from gt.config.scopes import rules_in_force
from gt.nn import listing, placing
from gt.nn.global_hooks import hooks_are_there
from gt.nn.hooked_call import call_hooked
from gt.nn.parameter import Parameter
from gt.nn.saved import Saved
from gt.sessions.compiled import CompiledFunction
from gt.tensors.devices import check_device

Self = TypeVar("Self", bound="Module")  # typing.Self is Python 3.11's
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _HasForward(Protocol[P, R_co]):
    @property
    def forward(self) -> Callable[P, R_co]: ...


class Module(Saved["Module"]):
    """The base class of layers and models: assign parameters and modules, and override
    `forward`.
    """

    _layout_rules: tuple[Rule, ...] = ()  # applied to parameters here and below
    _orientation = "[in, out]"  # orientation of its own weights: also `[out, in]` or `table`

    # ---- calling ----

    def _no_forward(self, *inputs: object) -> object:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    forward: Callable[..., Any] = _no_forward

    def _call(self, *args: object, **kwargs: object) -> object:
        if rules_in_force and rules_in_force[0] is not self._layout_rules:
            self._redistribute(rules_in_force[0], mark=rules_in_force[0])
        if not (
            self._forward_pre_hooks
            or self._forward_hooks
            or self._backward_pre_hooks
            or self._backward_hooks
            or hooks_are_there()
        ):
            return self.forward(*args, **kwargs)
        return call_hooked(self, self.forward, args, kwargs)

    if TYPE_CHECKING:  # calls have the type of `forward`

        def __call__(self: _HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:
        __call__ = _call

    # ---- layouts ----

    def _stored(self) -> Iterator[placing.Stored]:
        """Each parameter once, at its first path, with the orientation of its owner's weights."""
        seen: set[int] = set()
        for prefix, owner in self.named_modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    path = listing.joined(prefix, name)
                    yield placing.Stored(path, parameter, owner._orientation)

    def _redistribute(self, rules: tuple[Rule, ...], *, mark: tuple[Rule, ...]) -> list[str]:
        """Give parameters the layouts of `rules`; returns the paths of all parameters.

        Args:
            rules: the rules; the last one that matches applies.
            mark: rules that need not be checked again when the module is called.
        """
        stored = list(self._stored())
        placing.redistribute(stored, rules)
        for below in self.modules():
            object.__setattr__(below, "_layout_rules", mark)
        return [path for path, _, _ in stored]

    # ---- changing everything below ----

    def apply(self: Self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every module below, then with this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, convert: Callable[[Tensor], Tensor]) -> Self:
        for child in self.children():
            child._apply(convert)
        with gt.no_grad():
            for param in self._parameters.values():
                if param is not None:
                    _replace(param, convert)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = convert(buffer)
        return self

    def to(
        self: Self,
        *target: object,
        device: object = None,
        dtype: gt.dtype | type | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Cast floating-point parameters and buffers; a device is accepted and places nothing.

        Args:
            target: A device, a dtype, both in this order, or a tensor with the target dtype.
            device: Accepted and ignored.
            dtype: The dtype to cast to.
            non_blocking: Accepted and ignored: nothing ever waits.
        """
        del non_blocking
        check_device(device)
        dtype_target = target_dtype(target, dtype)
        if dtype_target is None:
            return self
        if not dtype_target.is_floating_point:
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype_target}"
            )
        return self._apply(lambda t: t.to(dtype_target) if t.is_floating_point() else t)

    def to_empty(self: Self, *, device: object, recurse: bool = True) -> Self:
        """Returns self with its values: there is no meta device."""
        del recurse
        check_device(device)
        return self

    def compile(self, *args: object, **options: object) -> None:
        """Compile the module's forward pass, as `gt.compile` does.

        Args:
            args: Accepted and ignored, as are `options`.
        """
        del args, options
        if not isinstance(self.__dict__.get("forward"), CompiledFunction):
            object.__setattr__(self, "forward", CompiledFunction(self.forward))

    def cuda(self: Self, device: object = None) -> Self:
        """Returns self unchanged; the dispatcher decides placement."""
        del device
        return self

    xpu = ipu = mtia = cuda  # PyTorch's other accelerators

    def cpu(self: Self) -> Self:
        """Returns self unchanged; the dispatcher decides placement."""
        return self

    def float(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self.to(gt.float32)

    def double(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self.to(gt.float64)

    def half(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self.to(gt.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self.to(gt.bfloat16)

    def type(self: Self, dst_type: gt.dtype) -> Self:
        """Cast all parameters and buffers."""
        return self._apply(lambda t: t.to(dst_type))

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode (dropout drops) here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")  # noqa: TRY004 (PyTorch's class)
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode (dropout passes) here and below."""
        return self.train(mode=False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Set if backward() fills the grad of every parameter."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros."""
        for param in self.parameters():
            listing.clear_gradient(param, to_none=set_to_none)

    def share_memory(self: Self) -> Self:
        """Returns self unchanged: handles are shared by name, not by memory."""
        return self

    # ---- printing ----

    def extra_repr(self) -> str:
        """Extra text for the module's repr."""
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr().split("\n") if self.extra_repr() else []
        below = [
            f"({name}): {listing.indented(repr(child))}" for name, child in self._modules.items()
        ]
        if len(own) == 1 and not below:
            return f"{self._get_name()}({own[0]})"
        if not own and not below:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"


def _replace(param: Parameter, convert: Callable[[Tensor], Tensor]) -> None:
    converted = convert(param.data)
    param.data = converted  # the parameter keeps its identity, since optimizers hold it
    if param.grad is not None:
        requires_grad = param.grad.requires_grad
        param.grad = convert(param.grad.detach()).requires_grad_(requires_grad)
