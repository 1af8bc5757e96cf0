"""`primus ci`: runs trainings and benchmarks, and compares what they measure with golden values."""
