"""Codecs by name: ``int8``, ``int4:block=32``, ``topk:share=1%,values=int8``.

A codec is a subclass of `Codec` in a module of its own, and it is listed here. Users set the keyword parameters of its
constructor; the codec keeps each in an attribute of the same name. docs/compression.md has the formats byte by byte.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from gossip.codecs.adacomp import AdaComp
from gossip.codecs.codec import Buffer, Codec, Payload, Unencodable
from gossip.codecs.feedback import ErrorFeedback
from gossip.codecs.half import BF16, FP16
from gossip.codecs.integers import Int4, Int8
from gossip.codecs.momentum_correction import MomentumCorrection
from gossip.codecs.none import Uncompressed
from gossip.codecs.qsgd import QSGD
from gossip.codecs.sign import Sign
from gossip.codecs.terngrad import TernGrad
from gossip.codecs.topk import TopK
from gossip.errors import SettingsError
from topologies.errors import BadParameter
from topologies.spec import Parameter, convert, parameters_of, split, suggest

__all__ = [
    "BF16",
    "FP16",
    "QSGD",
    "AdaComp",
    "Buffer",
    "Codec",
    "ErrorFeedback",
    "Int4",
    "Int8",
    "MomentumCorrection",
    "Payload",
    "Sign",
    "TernGrad",
    "TopK",
    "Uncompressed",
    "Unencodable",
    "get",
    "names",
    "parse",
    "spell",
    "summary",
]

_CODECS: dict[str, type[Codec]] = {
    codec.name: codec for codec in (Uncompressed, BF16, FP16, Int8, Int4, Sign, TernGrad, QSGD, TopK, AdaComp)
}


def names() -> list[str]:
    """Return the names of all codecs, sorted."""
    return sorted(_CODECS)


def summary(name: str) -> str:
    """Return the description of a codec, in one line."""
    return (inspect.getdoc(_CODECS[name]) or "").split("\n", 1)[0]


def get(name: str, **parameters: Any) -> Codec:
    """Return the codec ``name`` with its parameters."""
    codec = _CODECS.get(name)
    if codec is None:
        raise SettingsError(suggest("codec", name, _CODECS))
    try:
        return codec(**convert(name, _parameters(codec), parameters))
    except BadParameter as error:
        raise SettingsError(str(error)) from None


def parse(text: str) -> Codec:
    """Return the codec for a text of the command line, ``NAME[:key=value,...]``."""
    try:
        name, parameters = split(text)
    except BadParameter as error:
        raise SettingsError(str(error)) from None
    return get(name, **parameters)


def spell(codec: Codec) -> str:
    """Return the text from which `parse` makes this codec, with all parameters. Equal texts mean equal payloads."""
    given = ",".join(f"{key}={getattr(codec, key)}" for key in _parameters(type(codec)))
    return f"{codec.name}:{given}" if given else codec.name


def _parameters(codec: type[Codec]) -> Mapping[str, Parameter]:
    return {} if codec.__init__ is object.__init__ else parameters_of(codec.name, codec.__init__)
