"""Logged values as numbers. Without torch: the launcher reads modules that need this."""

from __future__ import annotations

from typing import Any

__all__ = ["as_number"]


def as_number(value: Any) -> float | None:
    """Return a logged value as a number, or None if it is none that a curve could show."""
    try:
        return None if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
