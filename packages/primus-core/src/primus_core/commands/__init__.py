"""Commands that need no runtime: `primus <name> ...` is the module of that name, with `parser()` and `run(words)`."""
