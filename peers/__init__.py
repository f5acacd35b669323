"""Peers: a PyTorch replica that gossips. The layer between the protocol and the launcher."""
