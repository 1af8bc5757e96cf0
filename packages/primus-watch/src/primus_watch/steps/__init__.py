"""What is wrong with the steps of a run that trains: their loss, gradients and time."""
