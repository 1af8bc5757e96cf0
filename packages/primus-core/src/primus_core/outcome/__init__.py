"""What became of a launch: the attempts, the first failure, the lines that end it on the console."""
