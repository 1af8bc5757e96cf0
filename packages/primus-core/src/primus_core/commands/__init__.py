"""The kernel's own commands that need no runtime; they join by entry point, as those of others do."""
