"""What processes print: read, masked, sorted to log files and console."""
