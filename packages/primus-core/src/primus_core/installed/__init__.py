"""What pip installed, read from its metadata without importing anything: packages, entry points, folders of data."""
