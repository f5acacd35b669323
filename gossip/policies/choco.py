"""CHOCO: neighbours tell each other compressed differences, and are drawn together by what is known of both.

Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication",
2019, arXiv:1902.00340. Everybody knows an estimate y of each neighbour, and what that neighbour knows of itself:

    q_i = C(z_i - y_i)        y_i <- y_i + q_i        z_i <- z_i + gamma sum_j w_ij (y_j - y_i)

What C takes off stays in z_i - y_i and is told later, so it may be any codec, those for gradients included. What one
end of an edge is moved by, the other is moved by with the other sign: the mean stays, and so do the weights.

Told is z after the optimizer's step. In "Decentralized Deep Learning with Arbitrary Communication Compression", 2019,
arXiv:1907.09356, by the same and Lin, it is z before it, so that messages travel while gradients are computed.

``gamma`` is how much of the way is gone. The coarser C, the staler are estimates, and the less is safe: 0, the default,
takes what suits the codec (`gossip.codecs.difference_codec`).

`local`, `slowmo` and `ssd` can tell differences as well, with ``differences=true``: after every h-th step only, and
then take their own steps on top. That is how a codec for gradients gets along with local steps.

Use it on a fixed graph over links that carry a few percent of a model per step.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy

__all__ = ["CHOCO"]


class CHOCO(Policy):
    """Compressed differences on a fixed symmetric graph, waiting for all neighbours."""

    name = "choco"
    lag = 0
    differences = True

    def __init__(self, *, gamma: float = 0.0) -> None:
        if not 0 <= gamma <= 1:
            raise SettingsError(
                f"choco: gamma is the part of the way to the neighbours' mean, above 0 and at most 1, not {gamma}; "
                "0 is what suits the codec"
            )
        self.gamma = gamma
