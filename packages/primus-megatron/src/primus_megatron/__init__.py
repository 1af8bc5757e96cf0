"""Megatron as a backend of Primus: plans without the framework, trains with Megatron's own loop."""
