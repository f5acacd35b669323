"""Placeholder."""

ENVIRONMENT: dict[str, str] = {}
