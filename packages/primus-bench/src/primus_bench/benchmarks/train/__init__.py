"""Training: options and plan, a layer of a model and its check, an experiment for some steps, workers and reports."""
