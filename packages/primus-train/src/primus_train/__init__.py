"""The task `train`: the experiment file, the contract of backends and what they share, models, templates."""
