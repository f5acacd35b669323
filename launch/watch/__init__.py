"""The live table of a swarm, in the launcher and in ``gossip watch`` and ``gossip status``."""
