"""The figures as a page, as Markdown and as JSON, and the file that they are written to."""
