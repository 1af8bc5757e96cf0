"""Benchmarks of devices, nodes and networks. Nothing is imported here: planning only needs `primus_bench.task`."""
