"""From words to a request: segments, options, and what another tool calls otherwise."""
