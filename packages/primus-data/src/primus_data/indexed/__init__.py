"""Megatron's data files: token ids in `PREFIX.bin`, and in `PREFIX.idx` where each sequence and document begins."""
