"""The modules that a plan may start by name (`python -m`). Saved plans hold these names: they stay."""
