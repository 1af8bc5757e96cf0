"""Who hangs, and where: the stacks of all ranks, compared."""
