"""What a scheduler and a launcher are: the shapes, and those that are installed, each by its name."""
