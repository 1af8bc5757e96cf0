"""Remove what a model should not learn from: steps of a pipeline file, done by datatrove, each with a report."""
