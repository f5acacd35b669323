"""What happens in a step of the optimizer: gossip, all-reduce, or a parameter server."""
