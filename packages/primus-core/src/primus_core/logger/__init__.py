"""The logger of what runs after the launch, on structlog, which nothing loads before."""
