"""What the summary at the end of a run says about the gossip of one peer."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from gossip.core.status import Status
from gossip.errors import Reason

__all__ = ["gossip_summary"]


def gossip_summary(
    status: Status, rejected: Mapping[Reason, int], weight: float, bytes_sent: int, bytes_received: int
) -> dict[str, Any]:
    """Return the fields of the summary.

    Args:
        status: after the peer has left.
        rejected: frames that were rejected, by reason.
        weight: what the peer held before it left.
        bytes_sent: in total.
        bytes_received: in total.
    """
    return {
        "bytes_sent": bytes_sent,
        "bytes_received": bytes_received,
        "rejected": {reason.value: count for reason, count in rejected.items()},
        "weight": weight,
        "weight_left": sum(status.weights) / len(status.weights) + fmean(status.waiting_weights),
        "weight_unanswered": fmean(status.unanswered_weights),
        "incarnation": status.me.incarnation,
    }
