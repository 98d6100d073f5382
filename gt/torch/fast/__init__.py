"""The fast path of operators on the device `mux`, in C++.

PyTorch calls `__torch_dispatch__` of a tensor subclass from a kernel in C++, which makes Python's
tuples and dicts of the arguments and looks at the results. Here an operator has a kernel of its own
at the same place. It calls the GT function that `gt.torch.dispatch` found for the operator, with
the same arguments, and wraps the results. What it does not know (another device's tensor, a mode,
scopes, an operator that looks at its arguments itself) goes on to `__torch_dispatch__`.

`offers` collects operators and their functions, `start` compiles and loads the library, the C++
files are one translation unit, `fast.cpp`.
"""
