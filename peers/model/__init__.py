"""A model as flat vectors: the replica that is mixed, its gradients, its whole state."""
