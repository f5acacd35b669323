"""The first fields of a header count by their exact type: a float or a bool is no version and no kind."""

from __future__ import annotations

import numpy as np
import pytest
from hand_swarm import sealed

from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec

CODEC = WireCodec("run", Layout.uniform(4, 2, np.dtype(np.float32)))


@pytest.mark.parametrize("kind", [[], [1], {}, True, 1.0], ids=repr)
def test_a_kind_of_another_type_is_malformed(kind: object) -> None:
    with pytest.raises(Rejected) as caught:
        CODEC.decode(sealed([VERSION, "run", kind, 7, 0, 1, 0, 5]))
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_of_another_type_is_another_version(version: object) -> None:
    with pytest.raises(Rejected) as caught:
        CODEC.decode(sealed([version, "run", 1, 7, 0, 1, 0, 5]))
    assert caught.value.reason is Reason.VERSION
