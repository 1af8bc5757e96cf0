"""What is in prepared data: how much, how long its documents are, and what they say."""
