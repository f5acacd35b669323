"""What peers say of their data to their neighbours, who find out what differs and what is the same by mistake.

Each peer speaks for itself, in some tens of bytes, and nothing is passed on: data that is shared out wrongly is so
between neighbours too. Nobody has to agree at a given moment. News come again with every step, so each comparison is
made as soon as both peers have something to compare.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

from peers.data.inputs import NO_EVIDENCE, STEPS

__all__ = ["DataNews", "Loop", "Sampled"]

#: The most data sets of `peer.sampler` that are told of: the first ones.
_SAMPLED = 8
#: Sketches of data sets that differ are further apart; see `peers.data.fingerprints`.
_APART = 1e-3
_SHARES = (
    "peer.batches shares the data out by itself: at every peer, give it the whole data set, not a part of it, with the "
    "same batch_size and epochs. For parts of your own, use a DataLoader of your own, without peer.batches"
)


class Loop(NamedTuple):
    """What a peer goes through with `peer.batches`."""

    number: int
    samples: int
    batch_size: int
    #: Of a stream, which has no epochs: 0. Its sketch is that of its beginning, once this was read.
    epochs: int
    sketch: float | None


class Sampled(NamedTuple):
    """A data set that a peer has given to `peer.sampler`."""

    samples: int
    sketch: float | None


class _Said(NamedTuple):
    """What a peer says."""

    #: The number that stands for the inputs of its first steps; 0: they are not over.
    inputs: int
    #: Its latest loop.
    loop: Loop | None
    sampled: list[Sampled]


class DataNews:
    """The topic ``data`` of one peer. Heard in the gossip thread, added to in the trainer's."""

    def __init__(self, rank: int, warn: Callable[[str], None], *, again: bool = False) -> None:
        """Begin with nothing to say.

        Args:
            rank: of this peer.
            warn: is called with a sentence that the user should read; once for each thing that is wrong.
            again: whether this is a later life, so that a former one has given the notice that may be due.
        """
        self._rank, self._warn = rank, warn
        self._inputs = 0
        self._notice_due = False
        self._again = again
        self._loop: Loop | None = None
        #: Whether the loop is over a stream of which each peer reads other samples from the start on.
        self._distinct = False
        self._sampled: list[Sampled] = []
        #: What each rank said last: this peer may have something to compare with it only later.
        self._heard: dict[int, _Said] = {}
        self._found: set[str] = set()
        self._lock = threading.RLock()

    @property
    def in_loop(self) -> bool:
        """Whether the script has begun a loop over `peer.batches`."""
        return self._loop is not None

    def saw(self, inputs: int, *, constant: bool) -> None:
        """Tell the number that stands for the inputs of the first steps; see `peers.data.inputs`.

        Args:
            inputs: the number.
            constant: whether the inputs were the same in each step: then it does not matter who reads what.
        """
        self._inputs = inputs
        self._notice_due = not (constant or self._again or self._loop or self._sampled)
        self._compare_all()

    def begin(self, loop: Loop, *, distinct: bool = False) -> None:
        """Tell of a loop that begins, or more of it.

        Args:
            loop: what this peer goes through.
            distinct: whether it is a stream of which each peer is to read other samples from the start on.
        """
        self._loop, self._distinct = loop, distinct
        self._compare_all()

    def sample(self, sampled: Sampled) -> None:
        """Tell of a data set that was given to `peer.sampler`."""
        if len(self._sampled) < _SAMPLED and sampled not in self._sampled:
            self._sampled = [*self._sampled, sampled]
            self._compare_all()

    def encode(self) -> bytes:
        """Return what this peer says."""
        packed: bytes = msgpack.packb([self._rank, self._inputs, self._loop, self._sampled])
        return packed

    def merge(self, data: bytes) -> bool:
        """Compare; return False, since nothing of it is passed on."""
        rank, said = _decoded(data)
        if rank != self._rank:  # or it is of a former life
            with self._lock:
                self._heard[rank] = said
                self._compare(rank, said)
        return False

    def _compare_all(self) -> None:
        with self._lock:
            for rank, said in self._heard.items():
                self._compare(rank, said)

    def _compare(self, rank: int, said: _Said) -> None:
        if said.inputs > NO_EVIDENCE and said.inputs == self._inputs:
            self._find(
                "inputs",
                f"this peer and rank {rank} draw the same batches: their models had the same inputs in each of their "
                f"first {STEPS} steps after the first one. Loaders with the same seed do that, and then more peers "
                "learn no more than one. Take the batches from peer.batches(dataset, batch_size, epochs), or give the "
                "DataLoader sampler=peer.sampler(dataset)",
            )
        elif said.inputs and self._notice_due and self._rank < min(self._heard) and not self._found:
            # Data that differs by the script's own doing is fine. But nothing that a peer sees tells it from whole data
            # sets in different orders, so the script is told what it has to see to: by the lowest rank around.
            self._find(
                "unshared",
                "the script uses neither peer.batches nor peer.sampler, so the swarm does not share the data out: "
                "every peer goes through all that its own loader gives it. That is right only if each peer reads other "
                "samples. Otherwise take the batches from peer.batches(dataset, batch_size, epochs), or give the "
                "DataLoader sampler=peer.sampler(dataset)",
            )
        if said.loop is not None and self._loop is not None and said.loop.number == self._loop.number:
            self._compare_loops(rank, self._loop, said.loop)
        ours, theirs = self._sampled, said.sampled
        # Not one by one: a script may make a further sampler at some ranks, say for an evaluation.
        if ours and theirs and not any(_same(one, other) for one in ours for other in theirs):
            one, other = ours[0].samples, theirs[0].samples
            have = f"{one} samples here and {other} there" if one != other else f"{one} samples each, not the same ones"
            self._find(
                "sampled",
                f"the data sets that this peer and rank {rank} have given to peer.sampler differ: {have}. peer.sampler "
                "picks a peer's part out of the whole data set: at every peer, give it the whole one, not a part of it",
            )

    def other_progress(self, index: int, told: str) -> None:
        """Warn that the progress of another peer does not fit to this peer's loop, if that is not known by now."""
        self._find(f"loop {index}", f"another peer and this one do not share out the same data: {told}. {_SHARES}")

    def _compare_loops(self, rank: int, ours: Loop, theirs: Loop) -> None:
        if ours[1:4] != theirs[1:4]:
            self._find(
                f"loop {ours.number}",
                f"this peer goes through {_described(ours)}, but rank {rank} goes through {_described(theirs)}. So "
                f"they share nothing out, and each goes through all of its own. {_SHARES}",
            )
        elif not ours.epochs:
            self._compare_beginnings(rank, ours, theirs)
        elif not _same(Sampled(ours.samples, ours.sketch), Sampled(theirs.samples, theirs.sketch)):
            self._find(
                f"loop {ours.number}",
                f"the data sets of peer.batches at this peer and at rank {rank} have {ours.samples} samples each, but "
                f"not the same ones. So each peer sees only a part of its own samples. {_SHARES}",
            )

    def _compare_beginnings(self, rank: int, ours: Loop, theirs: Loop) -> None:
        if ours.sketch is None or theirs.sketch is None:
            return
        same = _same(Sampled(0, ours.sketch), Sampled(0, theirs.sketch))
        if self._distinct and same:
            self._find(
                f"loop {ours.number}",
                f"the streams of this peer and of rank {rank} begin with the same samples, and each takes all of its "
                "own: so they train on the same. Leave out sharded=True, or let the stream, or the function that opens "
                "a part of it, use the number of the peer or of the part",
            )
        elif not (self._distinct or same):
            self._find(
                f"loop {ours.number}",
                f"the streams of this peer and of rank {rank} begin with different samples, and each takes only every "
                "n-th of its own: some samples are seen by nobody. If the stream is sharded, or draws at random, give "
                "peer.batches sharded=True; if it shuffles, let it have the same seed at every peer",
            )

    def _find(self, what: str, sentence: str) -> None:
        with self._lock:
            if what not in self._found:
                self._found.add(what)
                self._warn(sentence)


def _described(loop: Loop) -> str:
    what = f"{loop.samples} samples in batches of {loop.batch_size}"
    return f"{what} for {loop.epochs} epochs" if loop.epochs else f"{what} of a stream"


def _same(one: Sampled, other: Sampled) -> bool:
    """Whether two data sets may be the same, as far as is known."""
    if one.samples != other.samples:
        return False
    return one.sketch is None or other.sketch is None or math.isclose(one.sketch, other.sketch, abs_tol=_APART)


def _decoded(data: bytes) -> tuple[int, _Said]:
    try:
        # What a later release adds stands behind these four.
        rank, inputs, loop, sampled = msgpack.unpackb(data, max_map_len=0, max_ext_len=0)[:4]
        found = None if loop is None else Loop(*loop[:5])
        parts = [Sampled(*one[:2]) for one in sampled[:_SAMPLED]]
    except (ValueError, TypeError, IndexError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"not what a peer says of its data: {error!r:.80}") from None
    counts: list[Any] = [rank, inputs, *(found[:4] if found else ()), *(one.samples for one in parts)]
    sketches: list[Any] = [*([found.sketch] if found else ()), *(one.sketch for one in parts)]
    if not all(type(one) is int and one >= 0 for one in counts):
        raise ValueError("not what a peer says of its data: a rank or a number of samples is no count")
    if not all(one is None or (type(one) is float and math.isfinite(one)) for one in sketches):
        raise ValueError("not what a peer says of its data: a sketch is no number")
    return rank, _Said(inputs, found, parts)
