"""A folder for PYTHONPATH: `sitecustomize`, which Python imports at its start."""
