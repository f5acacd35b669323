"""What holds where a user says nothing, in the one place that everything reads it from: quick to import."""

__all__ = ["ALGORITHM"]

#: The algorithm of `gossip launch`, `gossip simulate` and `peers.join`.
ALGORITHM = "osgp"
