"""The code in a folder: what git knows of it, asked without running anything that the repository names."""
