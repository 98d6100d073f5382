"""Rows run by ATen without Python: docs/decisions/aten.md says why."""
