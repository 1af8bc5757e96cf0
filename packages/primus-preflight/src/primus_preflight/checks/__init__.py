"""What a check is, what it expects, which ones there are, and how they measure."""
