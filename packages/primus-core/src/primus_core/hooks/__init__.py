"""What a person runs around a launch: scripts before it, Python hooks beside it."""
