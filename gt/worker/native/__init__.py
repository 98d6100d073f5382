"""Rows run by ATen without Python: docs/decisions/native_aten.md says why."""
