"""A machine in a file, without what names it, so that another one can stand in for it."""
