"""Lists of hosts in Slurm's short form, such as ``n[0-2,7],gpu-03``."""

from __future__ import annotations

import itertools
import re

from gossip.errors import SettingsError

__all__ = ["expanded", "split_list"]

#: More names are a typing error.
_MOST = 1 << 16
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")


def expanded(text: str) -> list[str]:
    """Return the names that a list stands for, in its order: n[08-10] are n08, n09 and n10.

    Raises:
        SettingsError: If it is not such a list, with what is wrong with it.
    """
    names: list[str] = []
    for item in split_list(text):
        names += _item(item, text, _MOST - len(names))
    return names


def split_list(text: str) -> list[str]:
    """Return what stands between commas or blanks, apart from those in brackets."""
    return re.findall(r"(?:\[[^\[\]]*\]|[^\s,])+", text)


def _item(item: str, text: str, room: int) -> list[str]:
    parts = list(_PART.finditer(item))
    if "".join(part[0] for part in parts) != item:
        raise SettingsError(f"{text!r} is not a list of hosts: its brackets do not fit; an example is n[0-2,7],gpu-03")
    choices = [[part[2]] if part[1] is None else _numbers(part[1], text) for part in parts]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > room:
        raise SettingsError(f"{text!r} stands for more than {_MOST} hosts: check its ranges")
    return ["".join(words) for words in itertools.product(*choices)]


def _numbers(ranges: str, text: str) -> list[str]:
    """Return the numbers in a pair of brackets, as wide as the first one of each range is written."""
    found: list[str] = []
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if match is None or last < first:
            raise SettingsError(
                f"{text!r} is not a list of hosts: [{ranges}] must be numbers and ranges, as in [0-2,7]"
            )
        if last - first >= _MOST:
            raise SettingsError(f"{text!r} stands for more than {_MOST} hosts: check its ranges")
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return found
