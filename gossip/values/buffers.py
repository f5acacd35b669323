"""The types of the bytes that frames are made of."""

from __future__ import annotations

__all__ = ["Buffer"]

#: A frame, as it is handed to a transport or received from one.
Buffer = bytes | bytearray | memoryview
