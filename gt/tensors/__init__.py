"""Tensors as programs see them: creation, conversion, dtypes, printing, reads, files, gradients.

aten/ has the methods and functions by PyTorch's schemas. A file here is a module directly below
`gt` (gt/compat/__init__.py): gt/tensors/creation.py is `gt.creation`.
"""
