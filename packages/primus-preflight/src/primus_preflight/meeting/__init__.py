"""What nodes measure together: who meets whom, where, and how."""
