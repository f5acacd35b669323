"""Settings that cannot be meant, and algorithms by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import topologies
from gossip import policies
from gossip.errors import GossipError, SettingsError
from gossip.settings import Settings

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"run": "x"},
        {"run": "x" * 64},
        {"share": 1e-9},
        {"share": 1.0},
        {"weight_floor": 0.0},
        {"weight_floor": 0.999, "weight_cap": 1.001},
        {"weight_cap": INF},
        {"wait_ceiling": 0.0, "patience": 0.0},
        {"wait_ceiling": INF},
        {"resend_first": 2.0, "resend_ceiling": 2.0},
        {"inbox_bytes": 1, "neighbour_bytes": 1},
    ],
    ids=repr,
)
def test_settings_that_make_sense(given: dict[str, object]) -> None:
    settings = Settings(**given)  # type: ignore[arg-type]
    assert {key: getattr(settings, key) for key in given} == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"run": ""}, "run must be a name of 1 to 64 bytes"),
        ({"run": "x" * 65}, "run must be a name of 1 to 64 bytes"),
        ({"run": "ä" * 33}, "run must be a name of 1 to 64 bytes"),
        ({"share": 0.0}, "share must be a fraction above 0 and at most 1, not 0.0"),
        ({"share": -0.5}, "not -0.5"),
        ({"share": 1.01}, "not 1.01"),
        ({"share": NAN}, "not nan"),
        ({"weight_floor": -0.1}, "not -0.1 and 3.0"),
        ({"weight_floor": 1.0}, "not 1.0 and 3.0"),
        ({"weight_floor": NAN}, "not nan and 3.0"),
        ({"weight_cap": 1.0}, "and 1.0"),
        ({"weight_cap": NAN}, "and nan"),
        ({"wait_ceiling": -1.0}, "wait_ceiling must be 0 or more, not -1.0"),
        ({"wait_ceiling": NAN}, "wait_ceiling must be 0 or more, not nan"),
        ({"patience": -1.0}, "patience must be 0 or more"),
        ({"neighbour_bytes": -1}, "neighbour_bytes must be 0 or more, not -1"),
        ({"inbox_bytes": -1}, "inbox_bytes must be 0 or more, not -1"),
        ({"resend_first": 0.0}, "resend_first must be above 0"),
        ({"resend_first": 3.0}, "at most resend_ceiling = 2.0, not 3.0"),
        ({"resend_ceiling": NAN}, "at most resend_ceiling = nan, not 0.5"),
    ],
    ids=repr,
)
def test_a_setting_that_cannot_be_meant_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**given)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_settings_error_is_a_value_error_of_this_package() -> None:
    assert issubclass(SettingsError, ValueError)
    assert issubclass(SettingsError, GossipError)


def test_the_names_of_the_algorithms() -> None:
    names = policies.names()
    assert names == sorted(names)
    assert {"adpsgd", "dpsgd", "easgd", "gossip-pull", "gossip-push", "local", "osgp", "sgp"} <= set(names)
    assert {"noloco", "slowmo", "ssd"} <= set(names)


@pytest.mark.parametrize("name", policies.names())
def test_every_algorithm_says_what_it_is_in_one_line(name: str) -> None:
    summary = policies.summary(name)
    assert summary.endswith(".")
    assert "\n" not in summary
    assert policies.get(name).name == name
    assert type(policies.parse(name)) is type(policies.get(name))


def test_the_parameters_of_an_algorithm() -> None:
    assert policies.get("osgp").lag == 1
    assert policies.get("osgp", tau=3).lag == 3
    assert policies.parse("osgp:tau=2").lag == 2
    assert policies.parse(" osgp : tau = 0 ").lag == 0


def test_what_each_algorithm_waits_for() -> None:
    def lags(name: str) -> list[int | None]:
        return [policies.parse(name).lag_at(step) for step in range(1, 5)]

    assert lags("sgp") == lags("dpsgd") == lags("osgp:tau=0") == [0] * 4
    assert lags("slowmo") == lags("noloco") == lags("ssd") == [0] * 4
    assert lags("osgp") == [1] * 4
    assert lags("osgp:tau=2") == [2] * 4
    assert lags("adpsgd") == lags("gossip-push") == [None] * 4
    assert lags("osgp:tau=2,warmup=3") == [0, 0, 0, 2]
    assert lags("adpsgd:warmup=1") == [0, None, None, None]


def test_which_are_pairwise() -> None:
    assert [name for name in policies.names() if policies.get(name).pairwise] == ["adpsgd", "easgd"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spgd", "no algorithm is called 'spgd'; did you mean"),
        ("SPG", "did you mean"),
        ("zzz", "no algorithm is called 'zzz'; there are: adpsgd, "),
        ("", "no algorithm is called ''"),
        ("sgp:tau=1", "sgp has no parameter 'tau'; its parameters: rounds, momentum"),
        ("sgp:momentum=other", "sgp: momentum must be auto, inferred, own, mixed or quasi-global, not other"),
        ("slowmo:momentum=mixed", "slowmo has no parameter 'momentum'; its parameters: h, beta, alpha"),
        ("adpsgd:momentum=inferred", "adpsgd: momentum must be own, mixed or quasi-global, not inferred"),
        ("easgd:momentum=other", "easgd: momentum must be own, mixed or quasi-global, not other"),
        ("gossip-push:momentum=mix", "gossip-push: momentum must be own, mixed or quasi-global, not mix"),
        ("gossip-pull:momentum=mix", "gossip-pull: momentum must be own, mixed or quasi-global, not mix"),
        ("choco:h=1,momentum=mixed", "choco has no parameter 'h'; its parameters: gamma"),
        ("osgp:tua=1", "osgp has no parameter 'tua'; its parameters: tau"),
        ("osgp:tau=x", "osgp: tau takes an integer, not 'x'"),
        ("osgp:tau=1.5", "osgp: tau takes an integer, not '1.5'"),
        ("osgp:tau=-1", "0 or more, not -1"),
        ("osgp:tau", "'tau' is not of the form key=value"),
        ("osgp:tau=1,tau=2", "gives 'tau' twice"),
        ("local:h=0", "1 or more, not 0"),
        ("local:tau=-1", "0 or more, not -1"),
        ("slowmo:h=0", "slowmo: h, the steps from one push to the next, must be 1 or more, not 0"),
        ("slowmo:beta=1", "slowmo: beta, the outer momentum, must be from 0 to below 1, not 1.0"),
        ("slowmo:alpha=0", "slowmo: alpha, the outer rate, must be above 0 and at most 10, not 0.0"),
        ("slowmo:beta=nan", "from 0 to below 1, not nan"),
        ("noloco:h=-1", "noloco: h, the steps from one exchange to the next, must be 1 or more, not -1"),
        ("outer:h=0", "outer: h, the steps from one average to the next, must be 1 or more, not 0"),
        ("outer:mu=1", "outer: mu, the outer momentum, must be from 0 to below 1, not 1"),
        ("outer:eta=0", "outer: eta, the outer rate, must be above 0 and at most 10, not 0"),
        ("outer:slack=-1", "outer: slack, how much longer than its first peer a round may take, must be 0 or more"),
        ("outer:wait=-1", "outer: wait, how long a peer stands still for an average, must be 0 or more, not -1"),
        ("outer:tau=-1", "outer: tau, how many steps a peer makes while an average travels, must be 0 or more"),
        ("outer:slack=nan", "outer: slack, how much longer than its first peer a round may take, must be 0 or more"),
        ("noloco:mu=-0.1", "noloco: mu, the outer momentum, must be from 0 to below 1, not -0.1"),
        ("noloco:eta=inf", "noloco: eta, the outer rate, must be above 0 and at most 10, not inf"),
        ("ssd:k=0", "ssd: k, the steps from one exchange to the next, must be 1 or more, not 0"),
        ("ssd:warmup=-1", "ssd: warmup, the number of synchronous first steps, must be 0 or more, not -1"),
        ("adpsgd:warmup=-1", "adpsgd: warmup, the number of synchronous first steps, must be 0 or more, not -1"),
        ("osgp:warmup=x", "osgp: warmup takes an integer, not 'x'"),
    ],
)
def test_an_algorithm_that_there_is_not_is_told_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        policies.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["allreduce", "choco", "noloco", "parameter-server", "slowmo", "ssd"])
def test_who_cannot_have_the_momentum_option_says_who_can(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        policies.parse(f"{name}:momentum=quasi-global")
    listed = str(caught.value).partition("algorithms that have it: ")[2].split(", ")
    assert listed == ["adpsgd", "dpsgd", "easgd", "gossip-pull", "gossip-push", "local", "osgp", "sgp"]
    assert all(policies.parse(f"{one}:momentum=quasi-global").momentum == "quasi-global" for one in listed)


@pytest.mark.parametrize("name", ["ring", "one-peer-exponential"])
def test_dpsgd_refuses_an_asymmetric_topology_and_says_what_to_use(name: str) -> None:
    schedule = topologies.get(name, 8)
    with pytest.raises(SettingsError) as caught:
        policies.get("dpsgd").check(schedule)
    message = str(caught.value)
    assert f"in step 0 of {name} rank 0 sends 0.5 to 1 and gets 0" in message
    assert "base, bidirectional-ring or random-matching, or sgp" in message


def test_dpsgd_refuses_a_topology_that_is_asymmetric_only_later() -> None:
    def out(rank: int, step: int) -> tuple[tuple[int, float], ...]:
        return ((1 - rank, 0.5 if step == 0 or rank == 0 else 0.25),)

    schedule = topologies.Schedule("later", 2, topologies.Plan(2, out, lambda rank, step: (1 - rank,)))  # noqa: ARG005
    with pytest.raises(SettingsError, match=r"in step 1 of later rank 0 sends 0\.5 to 1 and gets 0\.25"):
        policies.get("dpsgd").check(schedule)


@pytest.mark.parametrize("algorithm", ["dpsgd", "choco", "slowmo:differences=true"])
def test_one_edge_of_a_file_that_goes_one_way_is_found_at_any_rank(algorithm: str, tmp_path: Path) -> None:
    n, odd = 300, (298, 280)
    lines = []
    for rank in range(n):
        others = [(rank + 1) % n, (rank - 1) % n, *(to for sender, to in [odd] if sender == rank)]
        lines += [f"{rank} {rank} {1 - 0.25 * len(others)}", *(f"{rank} {other} 0.25" for other in others)]
    file = tmp_path / "odd.edges"
    file.write_text("\n".join(lines))
    with pytest.raises(SettingsError, match=r"rank 298 sends 0\.25 to 280 and gets 0;"):
        policies.parse(algorithm).check(topologies.parse(f"@{file}", n))


def _odd_one_out(edges: tuple[tuple[int, float], ...]) -> topologies.Schedule:
    """Return a schedule of pairs that swap halves, but for rank 298 in step 70 of 80."""

    def out(rank: int, step: int) -> tuple[tuple[int, float], ...]:
        return edges if (rank, step) == (298, 70) else ((rank ^ 1, 0.5),)

    return topologies.Schedule("late", 300, topologies.Plan(80, out, lambda rank, step: (rank ^ 1,)))  # noqa: ARG005


@pytest.mark.parametrize(
    ("algorithm", "edges", "said"),
    [
        ("dpsgd", ((299, 0.25),), r"in step 70 of late rank 298 sends 0\.25 to 299 and gets 0\.5"),
        ("noloco", ((297, 0.5),), "in step 70 of late rank 298 sends 0.5 to 297, which is not such a pair"),
        ("easgd:alpha=0.4", ((1, 0.2), (2, 0.2), (299, 0.2)), "rank 298 has 3 neighbours in step 70 of late"),
    ],
)
def test_every_rank_of_every_step_of_a_period_is_looked_at(
    algorithm: str, edges: tuple[tuple[int, float], ...], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        policies.parse(algorithm).check(_odd_one_out(edges))


def test_of_a_schedule_that_is_too_large_as_many_ranks_are_looked_at_as_can_be_afforded() -> None:
    asked: set[int] = set()

    def out(rank: int, step: int) -> tuple[tuple[int, float], ...]:  # noqa: ARG001
        asked.add(rank)
        return ((rank ^ 1, 0.5),)

    schedule = topologies.Schedule("vast", 10**12, topologies.Plan(1, out, lambda rank, step: (rank ^ 1,)))  # noqa: ARG005
    for algorithm in ("dpsgd", "noloco", "easgd"):
        policies.get(algorithm).check(schedule)
    assert asked == set(range(500_000))


@pytest.mark.parametrize("name", ["base", "bidirectional-ring", "random-matching", "hypercube"])
@pytest.mark.parametrize("n", [2, 8])
def test_dpsgd_takes_the_topologies_that_it_recommends(name: str, n: int) -> None:
    policies.get("dpsgd").check(topologies.get(name, n))


@pytest.mark.parametrize("name", ["sgp", "osgp", "adpsgd"])
def test_the_others_take_any_topology(name: str) -> None:
    policies.get(name).check(topologies.get("ring", 8))


@pytest.mark.parametrize("name", ["ring", "one-peer-exponential", "bidirectional-ring", "complete", "hypercube"])
def test_noloco_refuses_what_makes_no_pairs_and_says_what_to_use(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        policies.get("noloco").check(topologies.get(name, 8))
    message = str(caught.value)
    assert message.startswith(f"noloco needs pairs that swap halves, but in step 0 of {name} rank 0 sends ")
    assert "use random-matching, or one-peer-hypercube for 2, 4, 8, ... peers, or another algorithm" in message


def test_noloco_refuses_halves_that_are_not_swapped() -> None:
    def out(rank: int, step: int) -> tuple[tuple[int, float], ...]:
        return ((1 - rank, 0.5 if step == 0 else 0.25),)

    schedule = topologies.Schedule("later", 2, topologies.Plan(2, out, lambda rank, step: (1 - rank,)))  # noqa: ARG005
    with pytest.raises(SettingsError, match=r"in step 1 of later rank 0 sends 0\.25 to 1, which is not such a pair"):
        policies.get("noloco").check(schedule)


@pytest.mark.parametrize(("name", "n"), [("random-matching", 7), ("random-matching", 8), ("one-peer-hypercube", 8)])
def test_noloco_takes_the_topologies_that_it_recommends(name: str, n: int) -> None:
    policies.get("noloco").check(topologies.get(name, n))


@pytest.mark.parametrize("text", ["sgp", "osgp", "dpsgd", "adpsgd", "local"])
@pytest.mark.parametrize("momentum", ["own", "mixed", "quasi-global"])
def test_the_momentum_options(text: str, momentum: str) -> None:
    assert policies.get(text).momentum == ("auto" if text in ("sgp", "osgp", "dpsgd") else "own")
    assert policies.parse(f"{text}:momentum={momentum}").momentum == momentum


def test_when_each_algorithm_exchanges() -> None:
    def steps(text: str) -> list[int]:
        return [step for step in range(1, 13) if policies.parse(text).exchanges(step)]

    assert steps("sgp") == steps("ssd") == list(range(1, 13))
    assert steps("local:h=5") == steps("slowmo:h=5") == steps("noloco:h=5") == [5, 10]
    assert steps("ssd:k=5,warmup=2") == [1, 2, 7, 12]
    for text in ("sgp", "local:h=5", "ssd:k=5,warmup=2"):
        policy = policies.parse(text)
        turns = [policy.step_of(turn) for turn in range(1, 40)]
        assert turns == [step for step in range(1, turns[-1] + 1) if policy.exchanges(step)]
