"""What was found, in one form for all benchmarks: JSON, table, Markdown, CSV."""
