"""Text for a training: found, tokenized, written as a framework reads it."""
