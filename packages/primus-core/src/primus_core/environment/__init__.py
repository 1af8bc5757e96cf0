"""What the ranks find in their environment, and why: variables of all layers, GPU profiles, the place of each rank."""
