"""What a script does to its model after attach is taken in, or refused, and never trains apart from the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from swarms import LONGEST, flat, swarm
from torch import nn

from gossip.errors import SettingsError
from peers import Peer
from peers.model.bindings import Bindings
from peers.model.replica import Replica


class Running(nn.Module):
    """Assigns its buffer anew in each pass, as models do that keep a mean of something."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(2))
        self.empty = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(x) + self.empty.sum()
        self.mean = 0.9 * self.mean + 0.1 * found.mean(0)
        return found


class Setting(torch.optim.SGD):
    """Sets new data where others change it in place."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    one.data = one.data - group["lr"] * one.grad


@pytest.mark.parametrize("algorithm", ["sgp", "sgp:momentum=mixed", "allreduce", "parameter-server", "slowmo"])
def test_values_that_were_put_elsewhere_are_mixed_all_the_same(algorithm: str) -> None:
    """And a parameter without any values does no harm to any algorithm."""

    def body(peer: Peer) -> tuple[torch.Tensor, torch.Tensor]:
        model = Running()
        identities = [id(one) for one in (*model.parameters(), model.mean)]
        kind = torch.optim.SGD if "momentum" in algorithm else Setting
        optimizer = kind(model.parameters(), lr=0.05, momentum=0.9)
        peer.attach(model, optimizer)
        for step in range(8):
            optimizer.zero_grad()
            model(torch.full((3, 2), peer.rank + 1.0)).square().mean().backward()
            optimizer.step()
            if step == 3:
                model.inner.bias.data = model.inner.bias.data.clamp(-0.1, 0.1)
        # Replicas that are equal by what they do must be changed alike.
        model.inner.weight.data = model.inner.weight.data * (1 + peer.rank if algorithm.startswith("s") else 2)
        peer.consensus(1e-4, LONGEST)
        assert [id(one) for one in (*model.parameters(), model.mean)] == identities
        return flat(model), model.mean.clone()

    (one, mean), (other, average) = swarm(2, body, algorithm=algorithm)
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mean, average, rtol=1e-3, atol=1e-3)
    assert mean.abs().max() > 0


def another(model: Running) -> None:
    model.inner.weight = nn.Parameter(torch.zeros(2, 2))


def gone(model: Running) -> None:
    del model.inner.bias


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda model: model.double(), r"mean is float64 \(2,\) on cpu now and was float32 \(2,\) on cpu"),
        (lambda model: model.inner.half(), r"^inner\.weight is float16 \(2, 2\) on cpu now and was float32"),
        (lambda model: model.to("meta"), "on meta now and was .* on cpu when the model was attached: move and convert"),
        (another, r"^inner\.weight is another parameter since the model was attached.*change values in place"),
        (gone, r"^inner\.bias is gone since the model was attached"),
        (
            lambda model: setattr(model, "mean", torch.zeros(3)),
            r"mean is float32 \(3,\) on cpu now and was float32 \(2,\)",
        ),
        (
            lambda model: model.frozen.requires_grad_(),
            r"frozen\.weight was frozen when the model was attached.*unfreeze",
        ),
    ],
)
def test_what_cannot_be_taken_in_is_refused_with_the_next_step_and_nothing_is_exchanged(
    change: Callable[[Running], Any], says: str
) -> None:
    def body(peer: Peer) -> None:
        model = Running()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        peer.attach(model, optimizer)
        model.to(peer.device).float()  # changes nothing
        optimizer.step()
        change(model)
        for one in model.parameters():
            one.grad = torch.ones_like(one)
        with pytest.raises(SettingsError, match=says):
            optimizer.step()
        with pytest.raises(SettingsError, match=says):
            peer.consensus()
        assert peer.step == 1
        assert not optimizer.state, "before the optimizer moves anything"

    swarm(1, body)


@pytest.mark.parametrize("momentum", ["mixed", "quasi-global"])
def test_a_group_that_is_added_late_is_refused_where_momentum_is_mixed(momentum: str) -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD([model.weight], lr=0.1, momentum=0.9)
        peer.attach(model, optimizer)
        optimizer.step()
        optimizer.add_param_group({"params": [model.bias]})
        with pytest.raises(
            SettingsError, match="2 parameters are in the optimizer now, and 1 were when it was attached"
        ):
            optimizer.step()

    swarm(1, body, algorithm=f"sgp:momentum={momentum}")


def test_a_group_that_is_added_late_trains_and_is_mixed_from_then_on() -> None:
    def body(peer: Peer) -> torch.Tensor:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD([model.weight], lr=0.1)
        peer.attach(model, optimizer)
        before = model.bias.detach().clone()
        for step in range(4):
            model.bias.grad = torch.tensor([float(peer.rank)])
            optimizer.step()
            if step == 1:
                assert torch.equal(model.bias.detach(), before)
                optimizer.add_param_group({"params": [model.bias]})
        peer.consensus(1e-5, LONGEST)
        return model.bias.detach() - before

    one, other = swarm(2, body, algorithm="allreduce")
    assert torch.equal(one, other)
    torch.testing.assert_close(one, torch.tensor([-0.1]))


@pytest.mark.parametrize(
    "change", [lambda model: model.__setitem__(0, nn.Linear(3, 3)), lambda model: model.append(nn.Linear(3, 3))]
)
def test_layers_that_come_after_attach_are_refused_at_the_next_step_or_consensus(change: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bindings = Bindings(model, optimizer, Replica(model), print)
    bindings.check()
    change(model)
    with pytest.raises(SettingsError, match=r"\.weight is another parameter .* or a new one"):
        bindings.check_parameters()
    with pytest.raises(SettingsError, match="or a new one"):
        bindings.check()
