"""Checkpoints of one peer: their content, and how they are written, checked and read."""
