"""What a process does for itself: takes signals, keeps its children, prints its stacks, tells of an exception."""
