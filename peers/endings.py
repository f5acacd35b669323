"""What is said of the end of a peer: how it ended, and what is wrong with its model then."""

from __future__ import annotations

import math
from collections.abc import Sequence

from peers.session.agreement_errors import DivergenceError

__all__ = [
    "AFTERWARDS",
    "LEAVING",
    "LOST_CREW",
    "NOTHING_DONE",
    "divergence",
    "ending_of",
    "idle",
    "is_workers_death",
    "no_consensus",
    "no_step",
    "over_before",
]

#: The exit code of a process whose crew has lost a row: nothing is wrong here, and it may be started again.
LOST_CREW = 75
#: What such a process reports while it hands over what it holds.
LEAVING = "leaving"

#: A sentence about a peer that attached a model, and then did nothing with the other peers.
NOTHING_DONE = (
    "the optimizer that was attached made no step, and the peers did not agree either, so the model is as it was when "
    "it was attached. Call step() of the very optimizer that was attached"
)

#: A sentence about an optimizer that goes on after its peer has ended.
AFTERWARDS = (
    "the optimizer makes a step after its peer has ended: from here on this process trains alone, and nobody gets its "
    "model. Train inside of the peer's with statement"
)


def ending_of(error: BaseException | None) -> str:
    """Return "finished", or what failed. A script that calls ``sys.exit(0)`` has finished."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished"
    return f"failed: {type(error).__name__}: {error}"


def is_workers_death(error: BaseException | None) -> bool:
    """Whether this is torch's error about a worker of a data loader that was killed.

    A scheduler sends SIGTERM to all processes of a peer. The workers of `Peer.batches` ignore it, but those of a loader
    that the script made itself die of it, and torch raises this error in the peer.
    """
    return isinstance(error, RuntimeError) and "DataLoader worker" in str(error)


def divergence(rank: int, names: Sequence[str], step: int, since: int | None) -> DivergenceError:
    """Return the error of a peer whose model is useless.

    Args:
        rank: of the peer.
        names: of the tensors that hold NaN or infinity.
        step: of the peer.
        since: the step after which that was noticed first, if it was noticed during training.
    """
    more = "" if len(names) == 1 else f" (and {len(names) - 1} more of its tensors)"
    when = f"noticed at step {step}" if since is None else f"since step {since} at the latest"
    return DivergenceError(
        f"rank {rank}: training diverged, {when}: {names[0]} of the model holds NaN or infinity{more}, and the "
        "other peers take nothing of it. Lower the learning rate or clip the gradients, and start from a checkpoint of "
        "an earlier step",
        math.inf,
    )


def idle(steps: int) -> str:
    """Return a sentence about a peer that made no step, while another one made this many, and then agreed with it."""
    return (
        f"the optimizer that was attached made no step, while another peer made {steps}. The average of all, which "
        "consensus() ends with, is half trained then: let every peer train"
    )


def over_before(step: int) -> str:
    """Return a sentence about a resumed peer that found nothing left to train."""
    return (
        f"training resumed at step {step} and made no step, because the checkpoint has seen all epochs. Give "
        "peer.batches more epochs to train on, or leave --resume out to begin anew"
    )


def no_consensus(step: int) -> str:
    """Return a sentence about peers that trained after they last agreed, at a step, and then ended."""
    return (
        f"peer.consensus() was not called after step {step}, so the models of the peers differ. Call it after training "
        "and before the model is saved; every peer must call it"
    )


def no_step(samples: int) -> str:
    """Return a sentence about a peer that took samples, and whose optimizer made no step."""
    return (
        f"this peer took {samples} samples from peer.batches, but the optimizer that was attached made no step. "
        "Nothing was trained here, and the average of all is worse for it. Call step() of the very optimizer that was "
        "attached"
    )
