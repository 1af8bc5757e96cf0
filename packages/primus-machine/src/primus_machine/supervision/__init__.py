"""One program, or the ranks of a node: started, watched, and ended with all that they started."""
