"""Shares of a whole, such as ``10%``: parsing, and checks of the range."""

from __future__ import annotations

from gossip.errors import SettingsError

__all__ = ["check_share", "parse_share"]


def parse_share(text: str, whole: str | None = None) -> float:
    """Parse ``10%`` or ``0.1`` as a fraction from 0 to 1. Errors quote ``whole``, the text around ``text``, if any."""
    number, percent, rest = text.strip(" ").partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if rest or not 0 <= value <= 1:
        if whole is not None:
            raise SettingsError(f"{whole!r}: {text!r} is not a share from 0% to 100%, such as 10% or 0.1")
        raise SettingsError(f"{text!r} is not a share from 0% to 100%, such as 10% or 0.1")
    return value


def check_share(share: float) -> None:
    """Raise a `SettingsError` unless the share is a valid share of the shards."""
    if not 0 < share <= 1:
        raise SettingsError(f"share must be a fraction above 0 and at most 1, not {share}")
