"""What is known of a swarm before it starts: peers, model, link and computing; and what is assumed of the rest."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gossip.errors import SettingsError

__all__ = ["Situation", "parse_link", "situation"]

#: Bytes per second and round trip of a link of which only the kind is known. loopback is what a peer of four on two
#: cores moves through shared memory (`python -m benchmarks.engine`, docs/results/speed.md); lan and wan are the slow
#: end of what `gossip.presets` says of them, and a round trip across a country.
_USUAL = {"loopback": (700e6, 0.0001), "lan": (125e6, 0.001), "wan": (6.25e6, 0.05)}
#: What stands for a model and for the computing of a step of which nothing is known.
_PARAMETERS, _COMPUTE = 10_000_000, 0.25
_BYTES = {"bit": 1 / 8, "b": 1.0}
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmg]?)(bit|b)(?:/s)?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", re.ASCII)


@dataclass(frozen=True)
class Situation:
    """A swarm, as far as the choice of a method depends on it."""

    peers: int
    #: Values of the model.
    parameters: int
    #: Bytes per second that a machine sends, and as many that it receives.
    rate: float
    #: Seconds until a message is answered.
    round_trip: float
    #: Seconds that a peer computes for a step.
    compute: float
    #: How many times as long the slowest peer computes.
    slowest: float = 1.0
    #: What was not known, with the value that stands for it, in words.
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.peers < 1:
            raise SettingsError(f"peers must be at least 1, not {self.peers}")
        if self.parameters < 1:
            raise SettingsError(f"parameters, the values of the model, must be at least 1, not {self.parameters}")
        for name in ("rate", "compute"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingsError(f"{name} must be a number above 0, not {getattr(self, name)}")
        if not 0 <= self.round_trip < math.inf:
            raise SettingsError(f"round_trip must be a number of seconds from 0 on, not {self.round_trip}")
        if not 1 <= self.slowest < math.inf:
            raise SettingsError(f"slowest, a multiple of the others' computing, must be 1 or more, not {self.slowest}")


def parse_link(text: str) -> tuple[float, float]:
    """Return the bytes per second and the round trip of ``50Mbit``, ``1Gbit,20ms``, ``10MB/s``, or of a kind of link.

    Without a round trip it is that of a local network. The kinds are those of `gossip.presets`.
    """
    if text in _USUAL:
        return _USUAL[text]
    rate_text, comma, time_text = (part.strip() for part in text.partition(","))
    rate, time = _RATE.fullmatch(rate_text), _TIME.fullmatch(time_text)
    if rate is None or not float(rate[1]) or (comma and time is None):
        raise SettingsError(
            f"{text!r:.80} is not a link: write what it carries and perhaps its round trip, such as 50Mbit, 10MB/s or "
            f"1Gbit,20ms; or {', '.join(list(_USUAL)[:-1])} or {list(_USUAL)[-1]}"
        )
    carried = float(rate[1]) * _SCALES[rate[2].lower()] * _BYTES[rate[3].lower()]
    if time is None:
        return carried, _USUAL["lan"][1]
    return carried, float(time[1]) * (1e-3 if time[2] == "ms" else 1.0)


def situation(
    peers: int, link: str = "", step_time: float = 0.0, parameters: int = 0, slowest: float = 1.0, kind: str = "lan"
) -> Situation:
    """Return the situation of a swarm; what is not given is assumed, and said to be.

    Args:
        peers: how many there are.
        link: as `parse_link` takes it; empty: the usual one of its kind.
        step_time: seconds of computing in a step; 0: not known.
        parameters: of the model; 0: not known.
        slowest: how many times as long the slowest peer computes.
        kind: of the link, if nothing else is known: loopback, lan or wan.
    """
    if not 0 <= step_time < math.inf:
        raise SettingsError(f"step_time must be 0 (not known) or a number of seconds, not {step_time}")
    if parameters < 0:
        raise SettingsError(f"parameters must be 0 (not known) or the number of values, not {parameters}")
    rate, round_trip = parse_link(link or kind)
    assumed = []
    if not link:
        assumed.append(f"a link of {rate * 8 / 1e6:g} Mbit/s and {round_trip * 1e3:g} ms, as usual for {kind}")
    if not parameters:
        assumed.append(f"{_PARAMETERS:,} parameters")
    if not step_time:
        assumed.append(f"{_COMPUTE:g} s of computing in a step")
    return Situation(peers, parameters or _PARAMETERS, rate, round_trip, step_time or _COMPUTE, slowest, tuple(assumed))
