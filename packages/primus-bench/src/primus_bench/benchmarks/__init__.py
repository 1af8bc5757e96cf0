"""The benchmarks of this package, each of which stands alone (`primus.benchmarks`)."""
