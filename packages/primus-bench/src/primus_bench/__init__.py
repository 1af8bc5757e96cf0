"""Benchmarks of one device. Nothing is imported here: the command line only needs `primus_bench.task`."""
