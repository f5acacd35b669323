"""``variance=swarm``: Adam's second moment as the batch of the whole swarm would have it, without any traffic.

Adam divides its move by sqrt(v), where v is the mean of g^2. With g = mu + noise of variance s^2 at one peer, v is
mu^2 + s^2. All-reduce averages the gradients of n peers first, so its v is mu^2 + s^2 / n. A gossiping peer sees only
its own noise, divides by too much, and moves up to sqrt(n) times less far: it needs another learning rate than
all-reduce, and is behind at the same one.

So mu^2 is needed. The noise of two batches is independent, hence the mean of g_t g_(t-l) is mu_t mu_(t-l), for any lag
l. Where mu hardly changes, that is mu^2. Where it swings from step to step, as along steep directions at a high rate,
its sign changes with the swing and its size stays. A swing that is invisible at a lag of 1 is visible at a lag of 2,
so the larger one of both is taken:

    c_l <- beta2 c_l + (1 - beta2) g_t g_(t-l)        e^2 = max(c_1^2, c_2^2) - chance v^2
    v' = min(v, v / n + (1 - 1 / n) DRIFT e)

each with Adam's correction for the first steps. Where mu is 0, c_l is not 0 but varies by sqrt((1 - beta2) /
(1 + beta2)) v; ``chance`` is the mean of the larger square of two such numbers. In the first steps both mu and chance
are larger, and what is taken off stays the same, as a margin.

DRIFT makes up for signals that change within two steps, whose products are smaller than their squares. A v' that is too
small is worse than one that is too large: it acts as a higher rate, and all-reduce's best rate is close to the highest
one that trains well. For the same reason the mean of g is no substitute for the products: swings cancel in it, and v'
becomes too small just where steps are too long already. Decision 38 has the figures.

Where parameters are stale when they arrive (osgp and adpsgd, after their warm-up), the highest rate is lower than
all-reduce's, and v' is larger by a margin: the square of that factor. It counts as far as exchanges are really late: by
the part of the last ones in which no shard got as much weight as it gave.

The optimizer is the user's own and computes its move itself. Before it moves, its second moment is set such that its
own update ends with v'; after the move v is put back. So every variant of torch works (fused, foreach, capturable), as
do checkpoints, and what `state_dict` shows is v. It holds for the optimizers that keep the mean of g^2 under torch's
name ``exp_avg_sq``: Adam, AdamW, NAdam, RAdam, LAMB.

With ``momentum=mixed`` a first moment may come from a neighbour and meet a v' that is still nearly 0 here, as in the
rows of an embedding that this peer has not used yet. So v' is at least the square of the first moment then, which
bounds the move by the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

import torch

from peers.methods.method import Method
from peers.model.spread import local_part
from peers.optimizers import LAMB

__all__ = ["SwarmVariance", "is_adaptive"]

_KINDS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, LAMB)
_FIRST, _SECOND = "exp_avg", "exp_avg_sq"
#: The mean of the larger one of two squares of independent normal numbers of variance 1.
_LARGER = 1 + 2 / math.pi
#: By what factor products of successive signals may be smaller than their squares; about 2 while a model is new.
_DRIFT = 3.0
#: What the last exchange counts for in how stale parameters are.
_NEW = 0.05
#: The most bytes of parameters that are worked on at a time: temporary tensors are as large.
_CHUNK = 1 << 26

Tensors = tuple[torch.Tensor, ...] | list[torch.Tensor]


def is_adaptive(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer divides by the root of a second moment that can be set, as Adam and its relatives do."""
    return isinstance(optimizer, _KINDS)


class _History:
    """What is kept of the gradients of one parameter."""

    def __init__(self, like: torch.Tensor) -> None:
        self.last, self.before = torch.zeros_like(like), torch.zeros_like(like)
        self.at_one, self.at_two = torch.zeros_like(like), torch.zeros_like(like)
        #: The gradients that were seen.
        self.seen = 0


class _Move(NamedTuple):
    """A second moment that is changed for the time of one move, and what it is afterwards."""

    moments: Tensors
    own: Tensors


class SwarmVariance(Method):
    """The second moment of one replica's swarm. Memory: five more vectors of the size of the parameters."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, mixed: bool = False, margin: float = 1.0, in_step: int = 0
    ) -> None:
        """Begin without a history.

        Args:
            optimizer: an adaptive one.
            mixed: whether its first moments are mixed.
            margin: how many times larger v' is where no exchange is in time, if it is less than v then.
            in_step: the number of first steps without the margin.
        """
        self._margin, self._in_step = margin, in_step
        #: The part of the last exchanges that were not in time.
        self._stale = 1.0
        self._optimizer = optimizer
        self._mixed = mixed
        self._histories: dict[torch.Tensor, _History] = {}
        self._moves: list[_Move] = []

    def begin(self, exchanges: bool) -> None:  # noqa: ARG002
        """Put back what a step left that failed."""
        self._put_back()

    @torch.no_grad()
    def evaluated(self, peers: Callable[[], float]) -> None:
        """Let the optimizer divide by the swarm's second moment in the move that follows."""
        self._put_back()
        n = peers()
        for group in self._optimizer.param_groups:
            # Without a memory v is g^2 itself, and there is nothing to estimate by.
            for parameters in _chunks(group["params"]) if float(group["betas"][1]) else ():
                self._prepare(parameters, group, n)

    def end(self) -> None:
        """Give the optimizer its own second moment back."""
        self._put_back()

    def balanced(self, shards: Container[int], pace: float) -> None:  # noqa: ARG002
        """Learn how often parameters are stale."""
        self._stale += ((not shards) - self._stale) * _NEW

    def _put_back(self) -> None:
        for moments, own in self._moves:
            torch._foreach_copy_(moments, own)
        self._moves = []

    def _prepare(self, parameters: Tensors, group: dict[str, Any], peers: float) -> None:
        """Take the gradients of some parameters in, and set their second moments."""
        gradients = self._gradients(parameters, group)
        ready: dict[int, list[int]] = {}
        for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            history = self._histories.get(parameter)
            if history is None or history.last.dtype != gradient.dtype:  # the optimizer may choose another precision
                history = self._histories[parameter] = _History(gradient)
            history.seen += 1
            if history.seen > 2 and _SECOND in self._optimizer.state[parameter]:
                ready.setdefault(history.seen, []).append(index)
        histories = [self._histories[one] for one in parameters]
        for seen, places in ready.items():
            self._set(
                [histories[place] for place in places],
                [self._optimizer.state[parameters[place]] for place in places],
                [gradients[place] for place in places],
                group["betas"],
                seen,
                peers,
            )
        torch._foreach_copy_([one.before for one in histories], [one.last for one in histories])
        torch._foreach_copy_([one.last for one in histories], gradients)

    def _set(
        self,
        histories: list[_History],
        states: list[dict[str, torch.Tensor]],
        gradients: Tensors,
        betas: tuple[float, float],
        seen: int,
        peers: float,
    ) -> None:
        """Set second moments such that the optimizer's own update makes the swarm's of them."""
        first, beta = map(float, betas)
        moments = [local_part(state[_SECOND]) for state in states]
        own = torch._foreach_mul(moments, beta)
        torch._foreach_addcmul_(own, gradients, gradients, 1 - beta)
        squares: Tensors = []
        for lag, products, earlier in (
            (1, [one.at_one for one in histories], [one.last for one in histories]),
            (2, [one.at_two for one in histories], [one.before for one in histories]),
        ):
            torch._foreach_mul_(products, beta)
            torch._foreach_addcmul_(products, gradients, earlier, 1 - beta)
            # Relative to v, which has seen as many gradients, or more if the history is newer than the optimizer.
            late = (1 - beta**seen) / (1 - beta ** (seen - lag))
            means = torch._foreach_mul(products, late)
            torch._foreach_mul_(means, means)
            if squares:
                torch._foreach_maximum_(squares, means)
            else:
                squares = means
        chance = torch._foreach_mul(own, own)
        torch._foreach_sub_(squares, chance, alpha=_LARGER * (1 - beta) / (1 + beta))
        torch._foreach_clamp_min_(squares, 0.0)
        torch._foreach_sqrt_(squares)
        torch._foreach_mul_(squares, _DRIFT)
        torch._foreach_mul_(squares, 1 - 1 / peers)
        torch._foreach_add_(squares, own, alpha=1 / peers)
        if seen > self._in_step:
            torch._foreach_mul_(squares, 1 + (self._margin - 1) * self._stale)
        torch._foreach_minimum_(squares, own)  # the swarm's noise is never more than the peer's
        if self._mixed:
            means = torch._foreach_mul(
                [local_part(state[_FIRST]).to(one.dtype) for state, one in zip(states, own, strict=True)], first
            )
            torch._foreach_add_(means, gradients, alpha=1 - first)
            torch._foreach_mul_(means, math.sqrt(1 - beta**seen) / (1 - first**seen))
            torch._foreach_maximum_(squares, torch._foreach_mul(means, means))
        # The update of the optimizer: moment <- beta moment + (1 - beta) g^2.
        torch._foreach_addcmul_(squares, gradients, gradients, -(1 - beta))
        torch._foreach_div_(squares, beta)
        torch._foreach_copy_(moments, squares)
        self._moves.append(_Move(moments, own))

    def _gradients(self, parameters: Tensors, group: dict[str, Any]) -> Tensors:
        """Return the gradients as the optimizer's second moment takes them in."""
        found: Tensors = [local_part(one.grad) for one in parameters if one.grad is not None]
        scale = getattr(self._optimizer, "grad_scale", None)  # set by GradScaler for optimizers that divide themselves
        if scale is not None:
            found = torch._foreach_div(found, scale)
        if group.get("weight_decay") and not _is_decoupled(self._optimizer, group):
            found = torch._foreach_add(
                found, [local_part(one.detach()) for one in parameters], alpha=group["weight_decay"]
            )
        kinds = [self._kind(one) for one in parameters]
        return [one.to(kind) for one, kind in zip(found, kinds, strict=True)]

    def _kind(self, parameter: torch.Tensor) -> torch.dtype:
        """Return the precision of a parameter's second moment."""
        state = self._optimizer.state.get(parameter, {})
        return state[_SECOND].dtype if _SECOND in state else parameter.dtype

    def state_dict(self) -> dict[str, Any]:
        """Return the means and the last gradients, by the number of the parameter in the optimizer."""
        kept: dict[str, Any] = {
            str(number): {
                "last": one.last,
                "before": one.before,
                "at_one": one.at_one,
                "at_two": one.at_two,
                "seen": one.seen,
            }
            for number, parameter in enumerate(self._parameters())
            if (one := self._histories.get(parameter)) is not None
        }
        return {**kept, "stale": self._stale} if kept else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._stale = float(state.get("stale", self._stale))
        for number, parameter in enumerate(self._parameters()):
            if (found := state.get(str(number))) is not None:
                one = self._histories[parameter] = _History(found["last"].to(parameter.device))
                for name in ("last", "before", "at_one", "at_two"):
                    getattr(one, name).copy_(found[name])
                one.seen = int(found["seen"])

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self._optimizer.param_groups:
            yield from group["params"]


def _is_decoupled(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Whether weight decay is no part of the gradient."""
    if isinstance(optimizer, torch.optim.AdamW):
        return True
    coupled = isinstance(optimizer, torch.optim.Adam | torch.optim.NAdam | torch.optim.RAdam)
    return not coupled or bool(group.get("decoupled_weight_decay"))


def _chunks(parameters: Tensors) -> Iterator[Tensors]:
    """Yield the parameters that have dense gradients, as many at a time as fit into a chunk, alike in device."""
    chunk: list[torch.Tensor] = []
    size = 0
    for one in parameters:
        if one.grad is None or one.grad.is_sparse:
            continue
        if chunk and (size > _CHUNK or one.device != chunk[0].device):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += one.numel() * one.element_size()
    if chunk:
        yield chunk
