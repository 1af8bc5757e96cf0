"""Where documents come from: JSON lines, plain or compressed, parquet, and folders of text files."""
