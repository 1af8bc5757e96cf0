"""What a line of a log is once its colours and prefixes are off: text, rank, node, time."""
