"""Fetch text: rows of a dataset of the Hugging Face Hub, of files or of URLs, as JSONL in shards."""
