"""Texts of configuration files, with the place of each value: YAML, TOML, and how large they may be."""
