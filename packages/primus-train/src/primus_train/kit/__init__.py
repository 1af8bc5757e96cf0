"""What backends share: options and settings, adaptations, the worker's beginning, the recording of steps."""
