"""The text of the character-level benchmarks: the sources of Python's standard library, every tenth file held out.

The order of the files is that of their names, so the same version of Python gives the same text. Tests are left out,
since some systems do not install them, and tables of characters, which are hardly text.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

__all__ = ["VOCABULARY", "Text", "encoded", "text", "windows"]

#: Printable ASCII and the line feed; what is nothing of it is left out.
_CHARACTERS = b"\n" + bytes(range(32, 127))
VOCABULARY = len(_CHARACTERS)
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data"}
#: One file of ten is for validation.
_TENTH = 10

_TOKENS = bytes(_CHARACTERS.find(one) if one in _CHARACTERS else 0 for one in range(256))
_FOREIGN = bytes(set(range(256)) - set(_CHARACTERS))

#: Tokens, and where each file ends.
Text = tuple[Tensor, Tensor]


def encoded(source: bytes) -> bytes:
    """Return the tokens of a text, one byte each."""
    return source.translate(_TOKENS, _FOREIGN)


@cache
def text() -> tuple[Text, Text]:
    """Return the text for training and the one for validation."""
    files = sorted(_sources(Path(sysconfig.get_path("stdlib"))))
    held_out = files[_TENTH - 1 :: _TENTH]
    return _read([file for place, file in enumerate(files, 1) if place % _TENTH]), _read(held_out)


def _sources(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir() and path.name not in _LEFT_OUT:
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _read(files: list[Path]) -> Text:
    parts = [encoded(file.read_bytes()) for file in files]
    tokens = np.frombuffer(b"".join(parts), np.uint8).astype(np.int64)
    return torch.from_numpy(tokens), torch.from_numpy(np.cumsum([len(part) for part in parts]))


def windows(tokens: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return what a model sees, ``block`` tokens in each row, none in two rows, and what follows each of them."""
    rows = tokens.unfold(0, block + 1, block)
    return rows[:, :-1], rows[:, 1:]
