"""The output of the ranks of a node: their pipes, and which of their lines are new."""
