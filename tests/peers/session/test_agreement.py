"""The end of training in a swarm: who agrees, who is missing, whose model is useless, and how a script learns of it."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, Meeting, swarm
from torch import nn

import peers
from gossip import presets
from gossip.errors import SettingsError
from peers import AgreementError, DivergenceError, Peer, PeerError
from peers.endings import divergence

ALL_KINDS = ["osgp", "sgp", "allreduce", "parameter-server"]


class Numbers(nn.Module):
    """Two numbers."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.full((2,), value, dtype=torch.float64))


def trained(peer: Peer, steps: int = 1, gradient: float = 0.0) -> Numbers:
    model = Numbers(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for _ in range(steps):
        model.at.grad = torch.full((2,), gradient, dtype=torch.float64)
        optimizer.step()
    return model


def endings(run: Path) -> list[str]:
    paths = sorted(run.glob("rank-*/summary.json"))
    return [json.loads(path.read_text())["exit"] for path in paths]


@pytest.mark.parametrize("must_agree", [True, False])
@pytest.mark.parametrize("algorithm", ["osgp", "allreduce"])
def test_who_is_missing_is_named_and_the_script_fails_unless_told_otherwise(
    algorithm: str, must_agree: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()

    def waits(peer: Peer) -> float:
        trained(peer, steps=2)
        rows = peer._attached().session.rows
        assert peer._attached().session.bulletin.wait_for(lambda: 1 in rows.all(), LONGEST)
        try:
            return peer.consensus(timeout=0.3, must_agree=must_agree)
        finally:
            over.set()

    def elsewhere(peer: Peer) -> None:
        trained(peer, steps=2)
        assert over.wait(LONGEST)

    meeting = Meeting(2, run_dir=str(tmp_path), algorithm=algorithm)
    result = meeting.run([waits, elsewhere], presets.preset("loopback"))[0]
    if must_agree:
        assert isinstance(result, AgreementError)
        assert endings(tmp_path)[0].startswith("failed: AgreementError: rank 0: no agreement")
        said = str(result)
    else:
        assert result > 1e-3
        assert endings(tmp_path) == ["finished", "finished"]
        said = caplog.text
    assert re.search(r"waited \d+ s in vain for rank 1 \((alive|slow), training, at step \d, no step in \d+ s\)", said)
    assert "rank 0: rank 0" not in said


def test_peers_that_come_but_stay_apart_say_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.session.consensus._Gaps.agrees", lambda _: False)

    def body(peer: Peer) -> float:
        trained(peer, gradient=float(peer.rank))
        return peer.consensus(0.5, 0.3)

    errors = [result for result in Meeting(2).run(body, presets.preset("loopback")) if result != 0.0]
    assert errors, "after the first has left, the second is alone"
    assert isinstance(errors[0], AgreementError)
    assert "apart, and the tolerance is 0.5. Mix longer" in str(errors[0])


def test_a_rank_that_calls_consensus_alone_is_told_what_its_model_is(caplog: pytest.LogCaptureFixture) -> None:
    left = threading.Barrier(3)

    def body(peer: Peer) -> float:
        model = trained(peer, gradient=-10.0 * peer.rank)
        left.wait(LONGEST)
        return peer.consensus() if peer.rank == 0 else float(model.at.detach()[0])

    assert swarm(3, body, presets.preset("loopback"))[0] == 0.0
    assert "rank 0: ranks [1, 2] left before all agreed. The model of this peer is the average" in caplog.text
    for rank in (1, 2):
        said = f"rank {rank}: peer.consensus() was not called after step 0, so the models of the peers differ"
        assert said in caplog.text


def test_one_that_diverged_fails_by_itself_and_the_others_agree(tmp_path: Path) -> None:
    diverged = threading.Barrier(3)

    def body(peer: Peer) -> float:
        trained(peer, steps=2)
        trains = peer._attached()._optimizer
        trains.param_groups[0]["params"][0].grad = torch.full((2,), math.nan if peer.rank == 1 else 0.0).double()
        trains.step()
        diverged.wait(LONGEST)
        return peer.consensus()

    one, bad, other = Meeting(3, run_dir=str(tmp_path)).run(body, presets.preset("loopback"))
    assert max(one, other) <= 1e-3
    assert isinstance(bad, DivergenceError)
    assert str(bad).startswith("rank 1: training diverged, ")
    assert ": at of the model holds NaN or infinity" in str(bad)
    assert [ending.partition(":")[0] for ending in endings(tmp_path)] == ["finished", "failed", "finished"]


def test_a_divergence_says_since_when() -> None:
    seen = divergence(1, ["head.weight", "head.bias"], 9, 4)
    assert str(seen).startswith(
        "rank 1: training diverged, since step 4 at the latest: head.weight of the model holds NaN or infinity (and "
        "1 more of its tensors), "
    )
    assert "training diverged, noticed at step 9: head.weight of the model" in str(
        divergence(1, ["head.weight"], 9, None)
    )


@pytest.mark.parametrize("algorithm", ["osgp", "local:h=100"])
def test_a_run_that_diverged_fails_also_without_consensus(algorithm: str, tmp_path: Path) -> None:
    results = Meeting(2, run_dir=str(tmp_path), algorithm=algorithm).run(
        lambda peer: trained(peer, gradient=math.inf), presets.preset("loopback")
    )
    assert [type(result) for result in results] == [DivergenceError] * 2
    assert [ending.partition(": rank")[0] for ending in endings(tmp_path)] == ["failed: DivergenceError"] * 2


def test_a_script_that_was_told_of_a_divergence_is_not_told_again(tmp_path: Path) -> None:
    with peers.join({}, run_dir=str(tmp_path)) as peer:
        trained(peer, gradient=math.nan)
        with pytest.raises(DivergenceError):
            peer.consensus()
    assert endings(tmp_path) == ["finished"]


@pytest.mark.parametrize("gradient", [0.0, math.nan])
def test_an_error_of_the_script_is_not_masked(gradient: float, tmp_path: Path) -> None:
    def script() -> None:
        with peers.join({}, run_dir=str(tmp_path)) as peer:
            trained(peer, gradient=gradient)
            raise ArithmeticError("a teapot")

    with pytest.raises(ArithmeticError, match="a teapot"):
        script()
    assert endings(tmp_path) == ["failed: ArithmeticError: a teapot"]


def test_nor_is_it_by_an_end_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = peers.join({}, run_dir=str(tmp_path))
    close = peer._reporter.end

    def fails(*arguments: Any) -> None:
        close(*arguments)
        raise OSError("no space left")

    def script() -> None:
        with peer:
            trained(peer)
            monkeypatch.setattr(peer._reporter, "end", fails)
            raise ArithmeticError("a teapot")

    with pytest.raises(ArithmeticError, match="a teapot"):
        script()
    assert "the end failed too: OSError('no space left')" in caplog.text


@pytest.mark.parametrize(("code", "ending"), [(None, "finished"), (0, "finished"), (3, "failed: SystemExit: 3")])
def test_a_script_that_exits_within_the_block_ends_as_it_says(code: int | None, ending: str, tmp_path: Path) -> None:
    def script() -> None:
        with peers.join({}, run_dir=str(tmp_path)) as peer:
            trained(peer)
            sys.exit(code)

    with pytest.raises(SystemExit):
        script()
    assert endings(tmp_path) == [ending]


@pytest.mark.parametrize("algorithm", ALL_KINDS)
def test_only_peers_that_trained_apart_are_told_to_agree(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, trained, presets.preset("loopback"), algorithm=algorithm)
    assert ("peer.consensus() was not called" in caplog.text) == (algorithm in ("osgp", "sgp"))


@pytest.mark.parametrize("algorithm", ALL_KINDS)
def test_peers_that_agreed_are_told_nothing(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> np.ndarray:
        model = trained(peer, gradient=float(peer.rank))
        assert peer.consensus() <= 1e-3
        return model.at.detach().numpy().copy()

    one, other = swarm(2, body, presets.preset("loopback"), algorithm=algorithm)
    np.testing.assert_allclose(one, other, rtol=1e-2)
    assert "differ" not in caplog.text


def test_a_peer_that_has_ended_says_so() -> None:
    with peers.join({}) as peer:
        trained(peer)
    for use in (peer.consensus, peer.__enter__, lambda: next(peer.batches(range(4), 2, 1))):
        with pytest.raises(PeerError, match="rank 0 has ended"):
            use()


def test_a_peer_that_the_script_forgets_says_goodbye_as_the_process_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at_exit: list[Any] = []
    # Modules that are imported meanwhile may register something, too.
    monkeypatch.setattr("atexit.register", lambda function, *_, **__: at_exit.append(function))
    monkeypatch.setattr("atexit.unregister", at_exit.remove)
    trained(peers.join({}, run_dir=str(tmp_path)))
    (forgotten,) = [one for one in at_exit if one.__name__ == "_forgotten"]
    forgotten()
    assert forgotten not in at_exit
    assert endings(tmp_path) == ["finished"]
    assert "the script ended without peer.close(): use the peer in a with statement" in caplog.text


def test_a_peer_whose_optimizer_never_steps_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def forgets_to_step(peer: Peer) -> None:
        trained(peer, steps=0)
        for _ in peer.batches([0.0] * 8, 4, 1):
            pass

    swarm(1, forgets_to_step)
    assert "this peer took 8 samples from peer.batches, but the optimizer that was attached made no step" in caplog.text


def test_peers_that_attach_no_model_are_told(caplog: pytest.LogCaptureFixture) -> None:
    swarm(2, lambda peer: peer.rank)
    assert caplog.text.count("the script ended without peer.attach(model, optimizer)") == 2


def test_alone_nothing_needs_to_be_attached(caplog: pytest.LogCaptureFixture) -> None:
    swarm(1, lambda peer: peer.rank)
    assert "peer.attach" not in caplog.text


@pytest.mark.parametrize(
    "terms",
    [{"tolerance": -1}, {"tolerance": "x"}, {"tolerance": math.nan}, {"timeout": -5}, {"timeout": "10"}],
)
def test_terms_that_are_none_are_refused_by_name_even_by_a_peer_that_is_alone(terms: dict[str, Any]) -> None:
    def body(peer: Peer) -> None:
        trained(peer)
        name = next(iter(terms))
        with pytest.raises(SettingsError, match=f"{name} must be .* not "):
            peer.consensus(**terms)
        with pytest.raises(SettingsError, match=f"{name} must be .* not "):
            peer.evaluate(lambda: 1.0, **terms)
        with pytest.raises(PeerError, match=r"needs a function without arguments, not 0\.5"):
            peer.evaluate(0.5)  # type: ignore[arg-type]
        peer.consensus(tolerance=0, timeout=5)

    swarm(1, body)


@pytest.mark.parametrize("algorithm", ["osgp", "allreduce"])
def test_values_that_are_none_before_the_first_step_are_refused(algorithm: str) -> None:
    """Training would begin, and be told much later that it has diverged."""

    def body(peer: Peer) -> None:
        model = Numbers(math.nan)
        with pytest.raises(SettingsError, match="at of the model holds NaN or infinity before the first step"):
            peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    swarm(1, body, algorithm=algorithm)


def test_a_peer_that_made_no_step_while_another_did_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """As by ``if peer.rank == 0: train()``: the average is half trained."""

    def body(peer: Peer) -> None:
        trained(peer, steps=0 if peer.rank else 5, gradient=1.0)
        peer.consensus(timeout=LONGEST)

    swarm(2, body, presets.preset("loopback"))
    said = [text for text in caplog.messages if "made no step, while another peer made 5" in text]
    assert [text.partition(":")[0] for text in said] == ["rank 1"]
    caplog.clear()
    swarm(2, lambda peer: (trained(peer, steps=0), peer.consensus(timeout=LONGEST)), presets.preset("loopback"))
    assert "made no step" not in caplog.text, "models can be averaged without training"
