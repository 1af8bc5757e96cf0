"""What is a secret, by its name or its shape, and how it is kept out of all that is shown or saved."""
