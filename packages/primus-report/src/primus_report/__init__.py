"""Reports of runs: figures with unit and source from run directories, as a page, as Markdown and as JSON."""
