"""The suite: its options and plan, the parts of a machine, one part as a process, the worker and its report."""
