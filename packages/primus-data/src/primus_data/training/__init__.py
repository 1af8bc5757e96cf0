"""What a training reads: the `data` section of backends, the order of samples, and the text of the quickstarts."""

__all__ = ["SEED"]

SEED = 1234
"""Of the order of samples, where nobody sets it: Megatron's default."""
