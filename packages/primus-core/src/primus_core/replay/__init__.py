"""A saved run, started again: planned from its snapshot, and compared with what is here."""
