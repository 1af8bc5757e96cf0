"""The task `train`, and what backends share: the experiment, settings, options, metrics, text."""
