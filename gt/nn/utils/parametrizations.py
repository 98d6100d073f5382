"""Ready-made parametrizations: orthogonal, spectral norm, weight norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.nn import functional
from gt.nn.module import Module
from gt.nn.utils import parametrize
from gt.nn.utils.spectral_norm import as_matrix, output_dim
from gt.nn.utils.weight_norm import norms, scaled
from gt.tensors.aten.call import call

T = TypeVar("T", bound=Module)

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

# Tolerance of an orthogonal matrix, in roundings for each of its n rows.
_ROUNDINGS = 10.0


class _Orthogonal(Module):
    """Maps a tall matrix to one with orthonormal columns, and a wide one to one with orthonormal
    rows.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        self._has_base = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        is_wide = x.shape[-2] < x.shape[-1]
        x = x.mT if is_wide else x  # [..., n, k], n >= k
        q = _MAPS[self.orthogonal_map](x)
        if self._has_base:
            assert self.base is not None, self.shape
            q = self.base @ q
        return q.mT if is_wide else q

    def right_inverse(self, q: Tensor) -> Tensor:
        """Parameters that give `q`, or a matrix near it if it is not orthogonal."""
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {q.shape}."
            )
        n, k = max(q.shape[-2:]), min(q.shape[-2:])
        is_wide = q.shape[-2] < q.shape[-1]
        tall = q.mT if is_wide else q
        with gt.no_grad():
            if not self._has_base:
                parameters = self._reflectors(tall)
                return parameters.mT if is_wide else parameters
            if n != k:
                others = gt.randn(*tall.shape[:-1], n - k, dtype=q.dtype)
                self.base = _made_orthogonal(gt.cat([tall, others], dim=-1))
            else:
                self.base = tall.clone() if _is_orthogonal(tall) else _made_orthogonal(tall)
            # Each map gives the identity for it: the reflections use its diagonal as signs.
            return gt.eye(*q.shape[-2:], dtype=q.dtype).neg().expand(q.shape).clone()

    def _reflectors(self, q: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        a, tau = _factored(q)
        diagonal = a.diagonal(dim1=-2, dim2=-1).sign()
        signs = gt.where(tau == 0.0, -diagonal, diagonal)  # 0: no reflection
        return a.tril(-1) + a.triu(1) + _on_diagonal(signs, a.shape)


def _on_diagonal(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A matrix [..., n, k] with `values` [..., k] on its diagonal."""
    return gt.eye(*shape[-2:], dtype=values.dtype) * values.unsqueeze(-2)


def _skew(x: Tensor) -> Tensor:
    """The skew-symmetric matrix [..., n, n] with the lower triangle of x [..., n, k]."""
    n, k = x.shape[-2:]
    x = x.tril()
    if n != k:
        x = gt.cat([x, gt.zeros(*x.shape[:-1], n - k, dtype=x.dtype)], dim=-1)
    return x - _adjoint(x)


def _one(operator: str, *operands: Tensor) -> Tensor:
    result: Tensor = call(operator, operands, {})
    return result


def _factored(x: Tensor) -> tuple[Tensor, Tensor]:
    """The QR factorization as reflectors, with R above them, and their factors."""
    reflectors, factors = call("geqrf", (x,), {})
    return reflectors, factors


def _adjoint(x: Tensor) -> Tensor:
    """The conjugate transposed matrices."""
    return x.mT if not x.is_complex() else _one("conj_physical", x.mT)


def _exponential(x: Tensor) -> Tensor:
    return _one("linalg_matrix_exp", _skew(x))[..., : x.shape[-1]]


def _cayley(x: Tensor) -> Tensor:
    """(I - A/2)⁻¹ (I + A/2)."""
    half = _skew(x) / 2
    identity = gt.eye(x.shape[-2], dtype=x.dtype)
    return _one("linalg_solve", identity - half, identity + half)[..., : x.shape[-1]]


def _householder(x: Tensor) -> Tensor:
    """The product of the reflections with vectors below the diagonal, with the diagonal
    as signs.
    """
    vectors = x.tril(-1)
    factors = 2.0 / (1.0 + (vectors * vectors).sum(dim=-2))
    q = _one("linalg_householder_product", vectors, factors)
    return q * x.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)


_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "matrix_exp": _exponential,
    "cayley": _cayley,
    "householder": _householder,
}


def _is_orthogonal(q: Tensor) -> bool:
    tolerance = _ROUNDINGS * q.shape[-2] * gt.finfo(q.dtype).eps
    off = (_adjoint(q) @ q - gt.eye(q.shape[-1], dtype=q.dtype)).abs()
    return bool((off <= tolerance).all().item())


def _made_orthogonal(a: Tensor) -> Tensor:
    """The Q of a = QR, with a positive diagonal of R."""
    reflectors, factors = _factored(a)
    q = _one("linalg_householder_product", reflectors, factors)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(
    module: T,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> T:
    """Keep a weight orthogonal: its columns, or its rows if there are fewer, are orthonormal.

    Lezcano-Casado, Trivializations for Gradient-Based Optimization on Manifolds (2019).

    Args:
        module: the module with the weight.
        name: name of a tensor with two dimensions or more; leading ones are a batch.
        orthogonal_map: `matrix_exp`, `cayley` or `householder`; by default the first for square
            tensors, the last for others.
        use_trivialization: whether to keep the former weight as a base, so that any value can be
            assigned.

    Raises:
        ValueError: there is no such tensor, it has too few dimensions, or the map is unknown.
    """
    weight = _tensor(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        is_square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if is_square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    parametrization = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, parametrization, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norms and the weight."""
        return norms(weight, self.dim), weight


def weight_norm(module: T, name: str = "weight", dim: int | None = 0) -> T:
    """Train the norm (`original0`) and the direction (`original1`) of a weight separately.

    State dictionaries of the older form, with `weight_g` and `weight_v`, can be loaded, too.

    Args:
        module: the module with the weight.
        name: the parameter's name.
        dim: dimension whose indices have a norm each; None for one norm of the whole tensor.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, Any], prefix: str, *_rest: object) -> None:
        older = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in older):
            for place, key in enumerate(older):
                new = f"{prefix}parametrizations.{name}.original{place}"
                state_dict[new] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % ndim, eps
        if ndim == 1:
            return
        self.n_power_iterations = n_power_iterations
        with gt.no_grad():
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = gt.randn(size, dtype=weight.dtype)
                self.register_buffer(name, functional.normalize(drawn, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Power iteration: moves `_u` and `_v` toward the first singular vectors."""
        with gt.no_grad():
            u, v = self._u, self._v
            for _ in range(steps):
                u = functional.normalize(gt.mv(matrix, v), dim=0, eps=self.eps)
                v = functional.normalize(gt.mv(_adjoint(matrix), u), dim=0, eps=self.eps)
            self._u, self._v = u, v  # new tensors: an earlier forward's backward reads the old ones
        return u, v

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            u, v = self._iterate(matrix.detach(), self.n_power_iterations)
        else:
            u, v = self._u, self._v
        return weight / gt.vdot(u, gt.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself, which is assumed to satisfy the constraint."""
        return value


def spectral_norm(
    module: T,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> T:
    """Divide a weight by its largest singular value, which a power iteration approximates.

    Miyato et al., Spectral Normalization for Generative Adversarial Networks (2018).

    Args:
        module: the module with the weight.
        name: the tensor's name.
        n_power_iterations: number of iterations at each read of the weight in training; none in
            evaluation.
        eps: lower bound of norms.
        dim: the dimension that becomes the rows of the matrix; by default the outputs'.

    Raises:
        ValueError: there is no such tensor, or n_power_iterations is below 1.
    """
    chosen = output_dim(module) if dim is None else dim
    parametrization = _SpectralNorm(_tensor(module, name), n_power_iterations, chosen, eps)
    return parametrize.register_parametrization(module, name, parametrization)


def _tensor(module: Module, name: str) -> Tensor:
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")  # noqa: TRY004 - PyTorch's class
    return value


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
