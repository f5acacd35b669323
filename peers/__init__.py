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
"""

from peers.joining import join
from peers.peer import Evaluation, Peer, PeerError

__all__ = ["Evaluation", "Peer", "PeerError", "join"]
