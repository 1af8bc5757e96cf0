"""Training data: from raw text to token ids that every backend reads."""
