"""Programs that a client sends as one instruction: parsed, run step by step, or compiled by
PyTorch's inductor.
"""
