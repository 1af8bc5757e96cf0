"""Results of benchmarks over time, in a small database beside the runs."""
