"""CHOCO: neighbours exchange compressed differences, and move towards each other by shared estimates.

Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication",
2019, arXiv:1902.00340. Every peer keeps an estimate y_j of each neighbour, and the estimate y_i that the neighbours
have of it:

    q_i = C(z_i - y_i)        y_i <- y_i + q_i        z_i <- z_i + gamma sum_j w_ij (y_j - y_i)

The error of C stays in z_i - y_i and is sent later. So C may be any codec, including those for gradients. The two peers
of an edge move by the same amount in opposite directions: the mean does not change, and the weights do not change.

Differences are those of z after the optimizer's step. In "Decentralized Deep Learning with Arbitrary Communication
Compression", 2019, arXiv:1907.09356, by the same authors and Lin, they are those of z before the step, so that messages
travel while gradients are computed.

``gamma`` is the part of the way to the neighbours' mean that a peer moves. The coarser C is, the staler are the
estimates, and the smaller gamma has to be. The default, 0, chooses gamma by the codec
(`gossip.codecs.difference_codec`).

`local`, `slowmo` and `ssd` exchange differences too if ``differences=true``: only after every h-th step, followed by
their own outer steps. So codecs for gradients can be combined with local steps.

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
                "choco: gamma, the part of the way to the neighbours' mean, must be above 0 and at most 1, or 0 for "
                f"the codec's default, not {gamma}"
            )
        self.gamma = gamma
