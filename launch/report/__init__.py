"""A page about a run: what its peers wrote, read again and drawn."""
