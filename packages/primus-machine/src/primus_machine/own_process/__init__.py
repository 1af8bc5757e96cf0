"""What a process does for itself: it keeps its children, prints its stacks, and tells of an exception that hangs."""
