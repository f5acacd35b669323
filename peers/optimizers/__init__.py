"""Optimizers for large batches: many peers together take steps as if the batch were all of theirs."""

from peers.optimizers.lamb import LAMB
from peers.optimizers.lars import LARS

__all__ = ["LAMB", "LARS"]
