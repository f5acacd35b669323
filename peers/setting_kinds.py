"""Whether the value of a setting is of the kind that the setting has."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any, SupportsIndex

from gossip.errors import SettingsError
from gossip.keys import KeyPair

__all__ = ["fitting"]


def _whole(value: Any) -> int | None:
    return operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else _whole(value)


def _text(value: Any) -> str | None:
    # A torch.device is told by its name: this module is also read by the launcher, which does without torch.
    if type(value).__module__ == "torch" and type(value).__name__ == "device":
        return str(value)
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    return found if isinstance(found, str) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    return value if isinstance(value, tuple) and all(isinstance(one, str) for one in value) else None


def _keys(value: Any) -> KeyPair | None:
    return value if isinstance(value, KeyPair) else None


#: By the type of the setting's field: what it is called, and a function that returns the value, or None if it is none.
_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("a whole number", _whole),
    "float": ("a number", _number),
    "str": ("text", _text),
    "bool": ("True or False", _flag),
    "tuple[str, ...]": ("a list of texts", _texts),
    "KeyPair | None": ("a gossip.keys.KeyPair", _keys),
}


def fitting(name: str, value: Any, kind: str) -> Any:
    """Return the value as its setting takes it, or raise a `SettingsError` that names the setting.

    Args:
        name: of the setting.
        value: that the user gave.
        kind: the type of the setting's field.
    """
    called, convert = _KINDS[kind]
    found = convert(value)
    if found is None:
        raise SettingsError(f"{name} must be {called}, not {value!r:.80} of type {type(value).__name__}")
    return found
