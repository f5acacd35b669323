"""Parcels to peers on the same host: the values stay in shared memory, and only a reference is sent."""
