"""PyTorch's operators without a row of their own: one instruction that names its schema.

`schemas` knows which there are, `binding` binds arguments, `call` asks and emits, `arguments` is
the text that travels, `surface` the functions and methods that users find.
"""
