"""Gradients of the random family: only dropout has an operand."""

from gt.gradients.rules import gradient

gradient("dropout", self=lambda g, s: g[0] * s.out1 * (1 / (1 - s.p) if s.p < 1 else 0.0))
