"""PyTorch's operators without a row of their own: one instruction that names its schema.

`schemas` lists the operators, `binding` binds arguments, `call` asks for results and emits,
`arguments` is the text in the instruction, `surface` has the functions and methods for users.
"""
