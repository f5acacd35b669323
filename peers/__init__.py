"""The peer: a model replica, its optimizer, and the gossip between them.

import peers

with peers.join() as peer:
    model = Net().to(peer.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for x, y in peer.batches(dataset, batch_size=32, epochs=3):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    peer.consensus()

The names of this package are imported when they are first used. So the launcher, which reads the settings of
`peers.setup` and the columns of `peers.table.columns`, does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peers.data.swarm_progress import SwarmProgress
    from peers.joining import join
    from peers.peer import Evaluation, Peer, PeerError
    from peers.planner.planning_splits import plan
    from peers.rate_schedule import SwarmSchedule
    from peers.rows.splitting import split_rows
    from peers.session.agreement_errors import AgreementError, DivergenceError

__all__ = [
    "AgreementError",
    "DivergenceError",
    "Evaluation",
    "Peer",
    "PeerError",
    "SwarmProgress",
    "SwarmSchedule",
    "join",
    "plan",
    "split_rows",
]

#: The module that defines each name.
_HOMES = {
    "AgreementError": "peers.session.agreement_errors",
    "DivergenceError": "peers.session.agreement_errors",
    "Evaluation": "peers.peer",
    "Peer": "peers.peer",
    "PeerError": "peers.peer",
    "SwarmProgress": "peers.data.swarm_progress",
    "SwarmSchedule": "peers.rate_schedule",
    "join": "peers.joining",
    "plan": "peers.planner.planning_splits",
    "split_rows": "peers.rows.splitting",
}

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        """Import a public name and keep it, so that this is called once for each."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        """List the public names too, imported or not."""
        return sorted({*globals(), *__all__})
