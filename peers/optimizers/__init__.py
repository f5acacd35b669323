"""Optimizers for large batches: many peers together take steps as if their batches were one."""

from peers.optimizers.lamb import LAMB
from peers.optimizers.lars import LARS

__all__ = ["LAMB", "LARS"]
