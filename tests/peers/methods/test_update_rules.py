"""The textbook rule as an ablation: where a peer holds little mass it diverges, and the rules used here do not."""

from __future__ import annotations

import torch

from peers.methods.moves import Moves

#: Gradient descent on z * z / 2 converges for rates below 2.
RATE, WEIGHT, ON_ITS_WAY = 0.5, 0.05, 0.5


def descended(factor: float | None, steps: int = 60) -> float:
    """Return how far from the optimum a peer ends whose z moves by ``factor`` times the move; None: as `Moves` say."""
    z = torch.ones(1, dtype=torch.float64)
    moves = Moves(1, lambda _: z, lambda _: (WEIGHT + ON_ITS_WAY) / WEIGHT)
    for _ in range(steps):
        if factor is None:
            moves.begin()
        z -= RATE * (1.0 if factor is None else factor) * z
        if factor is None:
            moves.end()
    return abs(float(z))


def test_the_textbook_rule_diverges_where_a_peer_holds_little_mass() -> None:
    assert descended(1 / WEIGHT) > 1e6, "x moves by u, so z by u / w"


def test_the_rules_used_here_converge() -> None:
    assert descended(1.0) < 1e-6, "the optimizer steps on z"
    assert descended(None) < 1e-6, "longer by the mass on its way, at most three times"
