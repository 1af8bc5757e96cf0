"""What people and programs see: text, Markdown, JSON, pages and pictures."""
