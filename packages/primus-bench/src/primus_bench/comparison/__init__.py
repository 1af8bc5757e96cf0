"""Two measurements of the same benchmark beside each other: what became slower, beyond the noise."""
