"""Push: a fraction of the mass that is held goes to each neighbour of the turn.

In pairwise averaging one end of a pair begins, and asks for the same fraction back.
"""

from __future__ import annotations

from gossip.exchange.exchange import Exchange
from gossip.wire.messages import Address, Pull

__all__ = ["WORTHWHILE", "Push"]

#: A push that the floor cuts to less than this part of the scheduled fraction is not worth its bytes.
WORTHWHILE = 0.25


class Push(Exchange):
    """PushSum, and pairwise averaging half for half."""

    def new_life(self) -> None:
        """Forget what was asked for."""
        #: When a shard of which there is nothing to give may be asked for again.
        self._pull_at: dict[int, float] = {}

    def take_turn(self, shard: int, turn: int, now: float) -> None:
        """Push the scheduled fractions, or what the floor leaves of them."""
        state, out = self.state, self.out
        pairwise = state.policy.pairwise
        edges: list[tuple[Address, float]] = []
        planned = state.edges(turn)
        degree = None if state.policy.fraction is None else len(planned)  # an elastic hub is a centre: its leaves begin
        for address, fraction in planned:
            if state.view.fenced(address):
                out.fence(address)
            elif pairwise and state.view.is_asked(address.rank, turn, degree):
                continue  # once for each pair and turn: the other end begins, and we answer
            elif out.backoff.skip(address.rank, shard) or not out.fits(address, shard):
                out.pass_turn(address, shard, turn)
            else:
                edges.append((address, fraction))
        weight = state.mass.weights[shard]
        wanted = weight * sum(fraction for _, fraction in edges)
        scale = min(1.0, (weight - state.floor) / wanted) if wanted > 0 else 0.0
        snapshot = None if scale < WORTHWHILE else out.snapshot(shard)
        for address, fraction in edges:
            if snapshot is None:
                out.pass_turn(address, shard, turn)
                if pairwise and scale < WORTHWHILE:
                    self._ask_instead(address, shard, turn, fraction, now)
            else:
                ask = fraction if pairwise else 0.0
                out.dispatch(address, shard, turn, scale * fraction * weight, snapshot, ask, now)
        out.keep_the_rest(shard, snapshot, weight)

    def _ask_instead(self, to: Address, shard: int, turn: int, fraction: float, now: float) -> None:
        """Ask for mass where there is none to give, once in a round trip, unless some of ours is in flight.

        Otherwise nobody might ever give us any, and a peer that believes us dead would not hear that we live.
        """
        out = self.out
        if not out.books.outbox.weight(shard) and now >= self._pull_at.get(shard, now):
            self._pull_at[shard] = now + out.resend.after(to.rank)
            out.outlet.send(Pull(self.state.me, to, turn, shard, fraction))
