"""Commands on results of benchmarks: they need no runtime."""
