"""Loops over data as a careless user writes them: each does what was meant, or says what is wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from swarms import Meeting, swarm
from torch import nn
from torch.utils.data import DataLoader

from gossip.errors import SettingsError
from peers import Peer, PeerError
from peers.data.loops import LoopError


def attached(peer: Peer) -> torch.optim.Optimizer:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    return optimizer


def alone(body: Any) -> Any:
    return swarm(1, body)[0]


def test_errors_come_from_the_call_and_not_from_the_first_batch() -> None:
    def body(peer: Peer) -> None:
        with pytest.raises(PeerError, match=r"call peer\.attach"):
            peer.batches([1, 2], 1, 1)
        attached(peer)
        with pytest.raises(SettingsError, match=r"loader\.dataset"):
            peer.batches(DataLoader([1, 2]), 1, 1)
        with pytest.raises(SettingsError, match=r"None is not a data set\. Give an object with a length"):
            peer.batches(None, 1, 1)
        with pytest.raises(SettingsError, match="at least 1"):
            peer.batches([1, 2], 1, 0)
        with pytest.raises(SettingsError, match="shuffle cannot be set"):
            peer.batches([1, 2], 1, 1, shuffle=True)
        assert sorted(int(one) for one in peer.batches([1, 2], 1, 1)) == [1, 2], "no loop had begun"

    alone(body)


def test_a_loop_that_is_kept_and_gone_through_again_says_so() -> None:
    def body(peer: Peer) -> None:
        attached(peer)
        loader = peer.batches(range(3), 1, 1)
        for _ in loader:
            break  # and on
        assert len(list(loader)) == 2
        with pytest.raises(LoopError, match=r"through with all its epochs.*epochs=N to one call of peer\.batches"):
            list(loader)

    alone(body)


@pytest.mark.parametrize("algorithm", ["osgp", "allreduce"])
def test_a_loop_inside_of_a_loop_ends_the_outer_one_with_an_error(algorithm: str) -> None:
    def body(peer: Peer) -> list[int]:
        optimizer = attached(peer)
        outer = peer.batches(range(4), 1, 1)
        next(outer)
        optimizer.step()
        inner = [int(one) for one in peer.batches(range(10, 13), 1, 1)]
        with pytest.raises(LoopError, match=r"loop 0 over peer\.batches has ended, because loop 1 has begun"):
            next(outer)
        return sorted(inner)

    assert swarm(1, body, algorithm=algorithm) == [[10, 11, 12]]


def test_loops_that_were_made_beforehand_run_one_after_the_other() -> None:
    def body(peer: Peer) -> tuple[list[int], list[int]]:
        attached(peer)
        first, second = peer.batches(range(3), 1, 1), peer.batches(range(5), 1, 1)
        return sorted(map(int, first)), sorted(map(int, second))

    assert alone(body) == ([0, 1, 2], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("held", [True, False])
def test_after_a_break_or_an_error_a_new_loop_begins_from_the_start(held: bool) -> None:
    """As in a notebook, where the traceback of the last error keeps the loop alive."""
    kept: list[Any] = []

    def body(peer: Peer) -> tuple[list[int], bool]:
        optimizer = attached(peer)
        try:
            for _ in peer.batches(range(6), 2, 1):
                optimizer.step()
                raise ZeroDivisionError
        except ZeroDivisionError as error:
            if held:
                kept.append(error.__traceback__)
        for _ in peer.batches(range(6), 2, 1):
            break
        found = sorted(int(one) for batch in peer.batches(range(6), 2, 1) for one in batch)
        kept.clear()
        return found, peer._loops.any_running

    assert alone(body) == ([0, 1, 2, 3, 4, 5], False)


def test_the_files_of_a_stream_are_shared_out_by_name() -> None:
    files = [f"train-{number}.tar" for number in range(12)]
    found: list[list[str]] = [[], []]

    def body(peer: Peer) -> None:
        optimizer = attached(peer)
        for file in peer.batches(files, 1, 1, collate_fn=lambda one: one[0]):
            found[peer.rank].append(file)
            optimizer.step()
        peer.consensus()

    swarm(2, body, algorithm="sgp")
    assert set(found[0] + found[1]) == set(files)
    assert len(found[0]) < 12
    assert len(found[1]) < 12


def test_two_data_sets_in_turns_are_each_gone_through() -> None:
    seen: list[Counter[tuple[str, int]]] = [Counter(), Counter()]

    def body(peer: Peer) -> None:
        optimizer = attached(peer)
        for _ in range(2):
            for name, n in (("a", 8), ("b", 12)):
                for batch in peer.batches(range(n), 2, 1):
                    optimizer.step()
                    seen[peer.rank].update((name, int(one)) for one in batch)
        peer.consensus()

    swarm(2, body)
    total = seen[0] + seen[1]
    assert set(total) == {("a", one) for one in range(8)} | {("b", one) for one in range(12)}
    assert min(total.values()) >= 2


def test_different_epochs_are_told_of_once_and_not_with_every_news(caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> None:
        optimizer = attached(peer)
        for _ in peer.batches(range(40), 1, 1 + peer.rank):
            optimizer.step()
        peer.consensus()

    assert Meeting(2).run(body) == [None, None]
    told = [text for text in caplog.messages if "samples" in text or "progress" in text]
    assert len(told) == 2
    assert "for 1 epochs, but rank 1 goes through 40 samples in batches of 1 for 2 epochs" in " ".join(told)


def test_a_loop_that_goes_on_behind_the_with_statement_says_that_the_peer_has_ended() -> None:
    left: list[Any] = []

    def body(peer: Peer) -> None:
        optimizer = attached(peer)
        left.append(peer.batches(range(3), 1, 1))
        next(left[0])
        optimizer.step()

    alone(body)
    with pytest.raises(PeerError, match="rank 0 has ended: use the peer inside of its with statement"):
        next(left[0])
