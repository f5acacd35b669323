"""Rates, sizes and times as people write them: ``10Gbit``, ``8GiB``, ``50us``."""

from __future__ import annotations

import math
import re

from gossip.errors import SettingsError

__all__ = ["parse_flops", "parse_latency", "parse_rate", "parse_size"]

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")
_STEPS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RATES = {f"{step}bit": factor / 8 for step, factor in _STEPS.items()}
_RATES |= {f"{step}B": factor for step, factor in _STEPS.items()}
_RATES |= {f"{unit}/s": factor for unit, factor in _RATES.items()}
_SIZES = {f"{step}B": factor for step, factor in _STEPS.items()}
_SIZES |= {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_FLOPS = _STEPS | {f"{step}flops": factor for step, factor in _STEPS.items()}


def parse_rate(text: str) -> float:
    """Return the bytes per second of ``10Gbit`` or ``1.2GB/s``."""
    return _parse(text, _RATES, "a rate such as 10Gbit, 50Mbit or 1.2GB/s")


def parse_size(text: str) -> float:
    """Return the bytes of ``8GiB`` or ``500MB``."""
    return _parse(text, _SIZES, "a size such as 8GiB or 500MB")


def parse_latency(text: str) -> float:
    """Return the seconds of ``1ms``, ``50us`` or ``0.1s``."""
    return _parse(text, _TIMES, "a time such as 1ms, 50us or 0.1s", least=0.0)


def parse_flops(text: str) -> float:
    """Return the operations per second of ``50G`` or ``10Tflops``."""
    return _parse(text, _FLOPS, "a number of operations per second such as 50G or 10T")


def _parse(text: str, units: dict[str, float], expected: str, *, least: float | None = None) -> float:
    found = _NUMBER.fullmatch(text)
    if found and found[2] in units:
        value = float(found[1]) * units[found[2]]
        if math.isfinite(value) and (value > 0 or value == least):
            return value
    raise SettingsError(f"{text!r} is not {expected}")
