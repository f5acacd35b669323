"""Settings by environment: a variable such as GOSSIP_TOPOLOGY for each setting that may come from there.

For `torchrun`, `srun` and containers, where a script has no options of `gossip launch`. Keys never come from the
environment, because every process of the same user can read it, and neither does what makes a run less safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from gossip.errors import SettingsError
from peers.host_lists import split_list
from peers.setup import Setup

__all__ = ["PLACE", "VARIABLES", "settings_from", "variable_of"]

_PREFIX = "GOSSIP_"
#: What a launcher counts, what is secret, and what has to be said where everybody sees it.
_NEVER = {
    *("incarnation", "birth", "elapsed", "killed", "contacts", "environment"),
    *("keys", "contact_keys", "invitation", "join_key", "watch_key", "public_keys"),
    *("insecure", "crews_across_hosts"),
}
#: The place of a process in the swarm. If torchrun or srun has set it, that counts.
PLACE = ("rank", "world_size", "local_rank")
#: Variables of this name that are no settings of a peer.
_OTHERS = {"GOSSIP_CHANNEL", "GOSSIP_SSH", "GOSSIP_REMOTE_PYTHON"}
#: What Kubernetes sets in every pod for a service whose name begins with gossip.
_SERVICE = re.compile(r"GOSSIP_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def variable_of(name: str) -> str:
    """Return the variable that holds a setting; empty if there is none."""
    return "" if name in _NEVER else _PREFIX + name.upper()


#: The settings that the environment may hold, by their variables, and the types of their fields.
VARIABLES = {variable_of(one.name): (one.name, str(one.type)) for one in fields(Setup) if one.name not in _NEVER}


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that the environment holds, by their names.

    A variable that is empty counts as not set.

    Raises:
        SettingsError: If a variable has the wrong kind of value, or looks like a setting and is none.
    """
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX) or variable in _OTHERS or not text:
            continue
        if _SERVICE.fullmatch(variable) or (variable.endswith("_PORT") and _SERVICE_URL.match(text)):
            continue
        if variable not in VARIABLES:
            raise _unknown(variable)
        name, kind = VARIABLES[variable]
        found[name] = _read(variable, text, kind)
    return found


def _unknown(variable: str) -> SettingsError:
    name = variable.removeprefix(_PREFIX).lower()
    if name in _NEVER:
        return SettingsError(
            f"{variable} cannot be set by environment: give {name} to peers.join, or let gossip launch set it"
        )
    near = get_close_matches(variable, VARIABLES, n=1, cutoff=0.0)
    return SettingsError(
        f"{variable} in the environment is not a setting: the nearest one is {near[0]}. Correct the name or unset it"
    )


def _read(variable: str, text: str, kind: str) -> Any:
    """Return the value that a text stands for."""
    if kind == "bool":
        if text.lower() not in _FLAGS:
            raise SettingsError(f"{variable}={text!r} in the environment must be 1 or 0, true or false, yes or no")
        return _FLAGS[text.lower()]
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            called = "a whole number" if kind == "int" else "a number"
            raise SettingsError(f"{variable}={text!r} in the environment must be {called}") from None
    if kind == "str":
        return text
    # Faults and stragglers contain commas.
    return tuple(split_list(text) if variable == variable_of("hosts") else text.split())
