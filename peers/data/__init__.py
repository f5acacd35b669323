"""Batches for one peer out of an epoch that belongs to the swarm."""
