"""The GPUs of a machine: what the drivers of AMD and NVIDIA list, and a table of the models."""
