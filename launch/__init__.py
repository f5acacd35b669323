"""The ``gossip`` command: everything that a user starts from a shell."""
