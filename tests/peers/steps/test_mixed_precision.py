"""Mixed precision end to end: float16 by torch.amp with a scaler, and bfloat16 that is kept and mixed in single."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from swarms import LONGEST, swarm
from torch import nn

from peers import Peer
from peers.model.master import Master

STEPS = 12


@pytest.mark.parametrize("algorithm", ["sgp", "allreduce"])
def test_amp_with_a_scaler_that_leaves_a_step_out_at_one_peer(algorithm: str) -> None:
    """The step that overflows at rank 1 is none there, its scale is halved, and all go on and agree."""

    def body(peer: Peer) -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        peer.attach(model, optimizer, also={"scaler": scaler})
        generator = torch.Generator().manual_seed(peer.rank)
        losses, seen = [], []
        for step in range(STEPS):
            inputs = torch.randn(16, 4, generator=generator)
            with torch.autocast("cpu", torch.float16):
                found = model(inputs)
                loss = (found - inputs.sum(1, keepdim=True)).float().square().mean()
            seen.append(found.dtype)
            losses.append(float(loss.detach()))
            optimizer.zero_grad()
            # Beyond float16's 65504 on the way back, where the network computes in it.
            overflows = 1e6 if peer.rank == 1 and step == 5 else 1.0
            scaler.scale(loss * overflows).backward()
            scaler.step(optimizer)
            scaler.update()
        # Looked at before: by allreduce, whoever is behind takes all over from the other in the end, the scaler too.
        steps, scale = peer.step, scaler.get_scale()
        peer.consensus(1e-3, LONGEST)
        return {
            "steps": steps,
            "scale": scale,
            "losses": losses,
            "kinds": {*seen, *(one.dtype for one in model.parameters())},
            "values": torch.cat([one.detach().flatten() for one in model.parameters()]),
        }

    first, second = swarm(2, body, algorithm=algorithm)
    assert first["scale"] == 64
    assert second["scale"] == 32
    assert (first["steps"], second["steps"]) == (STEPS, STEPS - 1)
    for one in (first, second):
        assert one["kinds"] == {torch.float16, torch.float32}, "computed in half precision, kept in single"
        assert one["losses"][-1] < one["losses"][0] / 2
        assert torch.isfinite(one["values"]).all()
    assert torch.allclose(first["values"], second["values"], atol=1e-2)


class Straight(nn.Module):
    """Its gradient is what it is told; with a batch norm, whose statistics are buffers, and a parameter unused."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.ones(3))
        self.norm = nn.BatchNorm1d(2, affine=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, slope: float, inputs: torch.Tensor) -> torch.Tensor:
        return slope * self.at.sum() + 0 * self.norm(inputs).sum()


@pytest.mark.parametrize(("algorithm", "off"), [("allreduce", 1e-5), ("sgp", 0.02)])
def test_steps_too_small_for_bfloat16_add_up_and_are_mixed_in_single(algorithm: str, off: float) -> None:
    """1 - 0.001 is 1 in bfloat16. A hundred such steps at one peer and none at the other: 0.95 on average.

    With all-reduce that is exact. With gossip moves are lengthened for mass that is on its way, by what is known of it,
    so it is only clearly away from 1, where bfloat16 would stay, and from 0.9, where there were no mixing.
    """

    def body(peer: Peer) -> tuple[torch.Tensor, torch.Tensor, list[str], torch.Tensor]:
        model = Straight().bfloat16()
        master = Master(model)
        optimizer = torch.optim.SGD(master.parameters(), lr=1e-3)
        peer.attach(master.single, optimizer)
        for _ in range(100):
            master.scatter()
            assert model.at.dtype == torch.bfloat16
            model(1.0 if peer.rank == 0 else 0.0, torch.randn(4, 2).bfloat16()).backward()
            master.gather()
            assert master.single.unused.grad is None
            assert model.at.grad is None, "taken"
            optimizer.step()
        peer.consensus(1e-6, LONGEST)
        master.scatter()
        kinds = [array.dtype.name for array in peer._attached().replica.arrays]
        return master.single.at.detach().clone(), model.at.detach().clone(), kinds, master.single.norm.running_var

    assert torch.tensor(1.0).bfloat16() - torch.tensor(1e-3).bfloat16() == 1
    for single, half, kinds, variance in swarm(2, body, algorithm=algorithm):
        torch.testing.assert_close(single, torch.full((3,), 0.95), rtol=0, atol=off)
        assert torch.equal(half, single.bfloat16())
        assert kinds == ["float32"], "mass is of single precision"
        assert not torch.equal(variance, torch.ones(2)), "the statistics came along"
