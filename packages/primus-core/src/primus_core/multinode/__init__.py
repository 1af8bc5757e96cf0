"""What concerns several nodes: they meet before their ranks start, and which of them failed first."""
