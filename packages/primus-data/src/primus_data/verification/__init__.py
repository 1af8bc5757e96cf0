"""Whether prepared data is what it should be: the index against the data, the tokens, and duplicates."""
