"""Commands that need no runtime: experiments, templates and models."""
