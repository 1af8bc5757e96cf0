"""The plan: everything that a run will do, as plain data, and how it is shown."""
