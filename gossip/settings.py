"""The settings of the protocol core: their meaning, and the cost of larger and smaller values."""

from __future__ import annotations

from dataclasses import dataclass

from gossip.errors import SettingsError
from gossip.shares import check_share

__all__ = ["ALGORITHM", "Settings"]

#: The algorithm where a user names none: of `gossip launch`, `gossip simulate` and `peers.join`.
ALGORITHM = "osgp"


@dataclass(frozen=True)
class Settings:
    """How one peer gossips. The defaults suit a local network."""

    #: The name of the run. Frames of other runs are rejected.
    run: str = "run"
    #: The share of the shards that is pushed in a step. A smaller share suits a link that cannot carry the model in one
    #: step: estimates stay unbiased, and agreement takes longer in proportion.
    share: float = 1.0
    #: The codec of parcels: none, bf16, fp16, int8, int4, or auto, which chooses by what the link carries in a step.
    #: The sender keeps the rounding error, so fewer bytes cost noise in z, never mass. Algorithms that average pairs
    #: also take topk-pair, which sends some values instead of whole shards: agreement takes longer. choco takes any
    #: codec.
    compress: str = "none"
    #: Bytes that may be in flight to one neighbour, unanswered. A smaller number bounds memory tighter. If it is
    #: smaller than what a link carries in a round trip, the link is idle at times. 0 means: two models.
    neighbour_bytes: int = 0
    #: Bytes of arrived mass that may wait until the trainer reaches its step boundary. Parcels that will be merged
    #: together share their bytes. So one model is enough if turns are not kept in order and no parcel asks for an
    #: answer. In pairwise averaging, parcels that ask are kept apart while there is room. 0 means: two models, or three
    #: there.
    inbox_bytes: int = 0
    #: The most seconds to wait for a neighbour's parcel. The actual wait is learned from arrivals.
    wait_ceiling: float = 10.0
    #: A multiple of this peer's time from one exchange to the next, which may be several steps. A neighbour that is
    #: later than that is slow, and is not waited for. With a smaller number a slow peer costs the others less; with a
    #: larger one a synchronous method stays synchronous on a worse network.
    patience: float = 2.0
    #: Seconds to wait for any neighbour, however short this peer's steps are. It should be above the usual round trip:
    #: otherwise a synchronous method with steps of a few milliseconds never waits.
    wait_floor: float = 0.1
    #: Seconds after which an unanswered parcel is sent again: the first value, and the largest. The value in use is
    #: learned from round trips.
    resend_first: float = 0.5
    resend_ceiling: float = 2.0
    #: Seconds before which nothing is sent again, however short the round trips are. The floor covers what round trips
    #: do not show: a receiver that waits for a CPU core. TCP also uses 0.2. Lost parcels are rare, and their mass waits
    #: this long.
    resend_floor: float = 0.2
    #: The least weight that a peer keeps when it pushes; the average weight is 1. Together with the cap it keeps every
    #: weight between 0.3 and 3 times the mean, so that no peer becomes a sink of mass, and none trains without mass. In
    #: an overlapping method a peer holds 2/3 and pushes half of it: the floor is below the rest. A floor closer to 1
    #: means less mixing, and a floor further away means more noise in z. With a floor of 0 the schedule's fractions are
    #: followed exactly, which a topology with an exact average needs.
    weight_floor: float = 0.3
    #: The most weight that a peer accepts; parcels beyond it return to their senders.
    weight_cap: float = 3.0

    def __post_init__(self) -> None:
        if not self.run or len(self.run.encode()) > 64:
            raise SettingsError(f"run must be a name of 1 to 64 bytes, not {self.run!r:.80}")
        check_share(self.share)
        if not 0 <= self.weight_floor < 1 < self.weight_cap:
            raise SettingsError(
                f"weight_floor must be from 0 to below 1 and weight_cap above 1, because the average weight is 1: "
                f"not {self.weight_floor} and {self.weight_cap}"
            )
        for name in (
            "wait_ceiling",
            "wait_floor",
            "patience",
            "resend_floor",
            "neighbour_bytes",
            "inbox_bytes",
        ):
            if not getattr(self, name) >= 0:
                raise SettingsError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not 0 < self.resend_first <= self.resend_ceiling:
            raise SettingsError(
                f"resend_first must be above 0 and at most resend_ceiling = {self.resend_ceiling}, "
                f"not {self.resend_first}"
            )
