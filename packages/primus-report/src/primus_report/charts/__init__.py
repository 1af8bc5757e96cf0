"""The charts of a page, as data for the charting library."""
