"""Codecs by name: ``int8``, ``int4:block=32``, ``topk:share=1%,values=int8``.

A codec is a `Codec` in a file of its own, listed here; the keyword parameters of its constructor are what users may
set, and what it keeps them as. docs/reference/codecs.md has the formats byte by byte.
"""

from __future__ import annotations

from typing import Any

from gossip.codecs.adacomp import AdaComp
from gossip.codecs.codec import Buffer, Codec, Payload, Unencodable
from gossip.codecs.feedback import ErrorFeedback
from gossip.codecs.half import BF16, FP16
from gossip.codecs.integers import Int2, Int4, Int8
from gossip.codecs.momentum_correction import MomentumCorrection
from gossip.codecs.none import Uncompressed
from gossip.codecs.qsgd import QSGD
from gossip.codecs.sign import Sign
from gossip.codecs.terngrad import TernGrad
from gossip.codecs.topk import TopK
from gossip.errors import SettingsError
from topologies.naming import ClassCatalog

__all__ = [
    "BF16",
    "FP16",
    "QSGD",
    "AdaComp",
    "Buffer",
    "Codec",
    "ErrorFeedback",
    "Int2",
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

_CODECS: ClassCatalog[Codec] = ClassCatalog(
    "codec", SettingsError, (Uncompressed, BF16, FP16, Int8, Int4, Int2, Sign, TernGrad, QSGD, TopK, AdaComp)
)


def names() -> list[str]:
    """Return the names of all codecs, sorted."""
    return _CODECS.names()


def summary(name: str) -> str:
    """Return a codec in one line."""
    return _CODECS.summary(name)


def get(name: str, **parameters: Any) -> Codec:
    """Return the codec ``name`` with its parameters."""
    return _CODECS.make(name, **parameters)


def parse(text: str) -> Codec:
    """Return the codec that the command line calls ``NAME[:key=value,...]``."""
    return _CODECS.parse(text)


def spell(codec: Codec) -> str:
    """Return the text that `parse` makes this codec of, with all parameters: equal texts, equal payloads."""
    given = ",".join(f"{key}={getattr(codec, key)}" for key in _CODECS.parameters(codec.name))
    return f"{codec.name}:{given}" if given else codec.name
