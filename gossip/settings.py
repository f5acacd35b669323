"""The settings of the protocol core: what each means, and what more or less of it costs."""

from __future__ import annotations

from dataclasses import dataclass

from gossip.errors import SettingsError
from gossip.shares import check_share

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How one peer gossips. The defaults suit a local network."""

    #: The name of the run. Frames of other runs are rejected.
    run: str = "run"
    #: The share of the shards that is pushed in a step. Less is for a link that cannot carry the model in
    #: one step: estimates stay unbiased, agreement takes longer in proportion.
    share: float = 1.0
    #: The codec that parcels go out in: none, bf16, fp16, int8, int4, or auto, by what the link carries in a step. What
    #: rounding takes off stays with the sender, so fewer bytes cost noise in z, never mass. Or topk-pair, where pairs
    #: average: some values instead of whole shards, so that agreement takes longer. With choco, any codec at all.
    compress: str = "none"
    #: Bytes that may be on their way to one neighbour, unanswered. Less bounds memory tighter; less than what a
    #: link carries in a round trip leaves the link idle. 0 means: two models.
    neighbour_bytes: int = 0
    #: Bytes of arrived mass that may wait for the trainer to come to its step boundary. Parcels that will be merged
    #: together share their bytes, so one model is enough where turns are not kept in order and nobody asks for an
    #: answer; in pairwise averaging those who ask are kept apart while there is room. 0: two models, or three there.
    inbox_bytes: int = 0
    #: Seconds to wait for a neighbour's parcel, at most. What is really waited is learned from arrivals.
    wait_ceiling: float = 10.0
    #: A neighbour later than so many times what takes us from one exchange to the next, a step or several, is slow and
    #: is not waited for. Less means that a slow peer costs the others less, more that a synchronous method stays
    #: synchronous on a worse network.
    patience: float = 2.0
    #: Seconds that any neighbour is worth waiting for, however short our own steps are. Above a usual round trip, or a
    #: synchronous method with steps of a few milliseconds waits for nobody.
    wait_floor: float = 0.1
    #: Seconds after which an unanswered parcel is sent again, at first and at most. Learned in between.
    resend_first: float = 0.5
    resend_ceiling: float = 2.0
    #: Seconds before which nothing is sent again, however short the round trips are. It stands for what they do not
    #: show: a receiver that waits for a core. TCP's is 0.2 as well. A lost parcel is rare, its mass waits so long.
    resend_floor: float = 0.2
    #: The least weight that a peer keeps when it pushes, where the average peer holds 1. Together with the cap it
    #: keeps every weight between 0.3 and 3 times the mean, so that no peer becomes a sink of mass nor trains
    #: without any. An overlapping method holds 2/3 and pushes half of it: the floor is below what is left then. Closer
    #: to 1 means less mixing, further away more noise in z. With a floor of 0 the schedule's fractions are followed to
    #: the letter, which an exact topology needs to be exact.
    weight_floor: float = 0.3
    #: The most weight that a peer accepts; parcels beyond it go back to their senders.
    weight_cap: float = 3.0

    def __post_init__(self) -> None:
        if not self.run or len(self.run.encode()) > 64:
            raise SettingsError(f"run is a name of 1 to 64 bytes, not {self.run!r:.80}")
        check_share(self.share)
        if not 0 <= self.weight_floor < 1 < self.weight_cap:
            raise SettingsError(
                "the average weight is 1, so weight_floor is below and weight_cap above: "
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
                raise SettingsError(f"{name} is not negative: {getattr(self, name)}")
        if not 0 < self.resend_first <= self.resend_ceiling:
            raise SettingsError(
                f"resend_first is above 0 and at most resend_ceiling: {self.resend_first}, {self.resend_ceiling}"
            )
