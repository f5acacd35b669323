"""The state of a peer as named tensors and a plain structure: what checkpoints hold and newcomers get."""
