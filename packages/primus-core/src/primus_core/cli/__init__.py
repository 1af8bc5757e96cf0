"""The command line, from words to an exit code. Kept empty: `primus --help` pays for every line."""
