"""Which peers are sent references instead of values; see `gossip.shared_memory`.

That a peer's address is on this host does not say that it can read our memory: it may run as another user, in another
container, or behind a tunnel. So it is asked. The question names a place on a board, a file in memory that others may write
to, and a random number; who can write the number there can read our memory as well. Until then it is sent the values.

A reference may get lost, and nobody says so. Its parcel is then sent again, for want of an answer: at first as a
reference, and with a new question. If that is not answered within a second, or the parcel comes yet again, values are sent.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable

from gossip.shared_memory import Reference, create, find

__all__ = ["Board", "Sharing"]
