"""Checkpoints of one peer: what is in them, how they are written, checked and read."""
