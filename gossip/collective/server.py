"""Placeholder."""


class ParameterServer:
    """Placeholder."""
