"""The best candidate of a situation, and why."""

from __future__ import annotations

from dataclasses import dataclass

from gossip import codecs
from gossip.choosing.forecasts import CANDIDATES, Forecast, forecast
from gossip.choosing.situations import Situation
from gossip.codecs.trusted import AUTO
from gossip.errors import SettingsError

__all__ = ["ANY", "Recommendation", "recommend"]

#: What users call the choice of an algorithm by this model; it is none itself.
ANY = "auto"
#: Less progress than this part of the best counts as equal: the figures are not that exact.
_LEVEL = 0.98


@dataclass(frozen=True)
class Recommendation:
    """What to use, and what was predicted."""

    algorithm: str
    compress: str
    share: float
    #: All candidates, the best first.
    forecasts: tuple[Forecast, ...]
    #: Why, in a sentence; and what was assumed, in another one, or nothing.
    why: str
    assumed: str

    def __str__(self) -> str:
        return f"{self.why}{'. ' if self.assumed else ''}{self.assumed}"


def recommend(known: Situation, compress: str = "none", share: float = 1.0) -> Recommendation:
    """Return what gets furthest in a second.

    Args:
        known: the situation.
        compress: none: any codec; auto: any, but a method that can measure the link itself is left to do so; a codec:
            only that one.
        share: 1: any share; otherwise only that one, and so only methods that push shards.
    """
    if compress == AUTO and share < 1:
        raise SettingsError(
            f"algorithm={ANY} chooses the share with compress={AUTO}: leave share={share:g} out, or name the algorithm"
        )
    fitting = [
        one
        for one in CANDIDATES
        if (compress in ("none", AUTO) or one.compress == compress) and (share == 1 or one.share == share)
    ]
    if not fitting:
        known_codecs = ", ".join(dict.fromkeys(one.compress for one in CANDIDATES))
        codecs.parse(compress)  # an unknown codec is another error
        raise SettingsError(
            f"algorithm={ANY} knows no method with compress={compress} and share={share:g}: it was measured with "
            f"{known_codecs}, and with shares of 1/2, 1/4, 1/8 and 1/16 in int8. Leave them out, or name the algorithm"
        )
    # Sorting is stable: where forecasts are level, the first candidate sends most and needs the fewest assumptions.
    ordered = sorted((forecast(one, known) for one in fitting), key=lambda one: -one.progress)
    level = [one for one in ordered if one.progress >= _LEVEL * ordered[0].progress]
    best = min(level, key=lambda one: fitting.index(one.candidate))
    ranked = (best, *(one for one in ordered if one is not best))
    gossips = not best.candidate.algorithm.startswith("outer")
    return Recommendation(
        best.candidate.algorithm,
        AUTO if compress == AUTO and gossips else best.candidate.compress,
        1.0 if compress == AUTO else best.candidate.share,
        ranked,
        _reason(ranked, known),
        f"Assumed, because it is not known: {', '.join(known.assumed)}" if known.assumed else "",
    )


def _reason(ranked: tuple[Forecast, ...], known: Situation) -> str:
    best = ranked[0]
    if known.peers == 1:
        return f"{best.candidate}: there is nobody to exchange with"
    waits = best.seconds - known.compute
    if best.candidate.algorithm.startswith("outer"):
        sent = f"{best.sending:.2g} s of sending per step, in a burst after h steps, beside"
    elif waits < 0.05 * known.compute and best.candidate.algorithm != "sgp":
        sent = f"{best.sending:.2g} s of sending hidden behind"
    else:
        sent = f"{best.sending:.2g} s of sending beside"
    said = f"{best.candidate}: {sent} {known.compute:.3g} s of computing; a step takes {best.seconds:.3g} s and is "
    said += f"worth {best.worth:.2f} steps of all-reduce"
    for other in _others(ranked):
        times = best.progress / other.progress
        said += f"; {other.candidate} would take {other.seconds:.3g} s for {other.worth:.2f} of a step, "
        said += f"{times:.2f} times as long for the same progress"
    return said


def _others(ranked: tuple[Forecast, ...]) -> list[Forecast]:
    """Return the best of each other algorithm."""
    found: dict[str, Forecast] = {}
    for one in ranked:
        found.setdefault(one.candidate.algorithm.partition(":")[0], one)
    return list(found.values())[1:]
