"""Crews: the processes that hold one replica between them, and what they decide together."""
