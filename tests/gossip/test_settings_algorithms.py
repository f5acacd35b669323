"""Settings that cannot be meant, and algorithms by name."""

from __future__ import annotations

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
        ({"run": ""}, "run is a name of 1 to 64 bytes"),
        ({"run": "x" * 65}, "run is a name of 1 to 64 bytes"),
        ({"run": "ä" * 33}, "run is a name of 1 to 64 bytes"),
        ({"share": 0.0}, "share is a fraction above 0 and at most 1, not 0.0"),
        ({"share": -0.5}, "not -0.5"),
        ({"share": 1.01}, "not 1.01"),
        ({"share": NAN}, "not nan"),
        ({"weight_floor": -0.1}, "not -0.1 and 3.0"),
        ({"weight_floor": 1.0}, "not 1.0 and 3.0"),
        ({"weight_floor": NAN}, "not nan and 3.0"),
        ({"weight_cap": 1.0}, "and 1.0"),
        ({"weight_cap": NAN}, "and nan"),
        ({"wait_ceiling": -1.0}, "wait_ceiling is not negative: -1.0"),
        ({"wait_ceiling": NAN}, "wait_ceiling is not negative: nan"),
        ({"patience": -1.0}, "patience is not negative"),
        ({"neighbour_bytes": -1}, "neighbour_bytes is not negative: -1"),
        ({"inbox_bytes": -1}, "inbox_bytes is not negative: -1"),
        ({"resend_first": 0.0}, "resend_first is above 0"),
        ({"resend_first": 3.0}, "at most resend_ceiling: 3.0, 2.0"),
        ({"resend_ceiling": NAN}, "resend_ceiling: 0.5, nan"),
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
    assert policies.names() == ["adpsgd", "dpsgd", "local", "osgp", "sgp"]


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
    def awaited(name: str) -> list[int | None]:
        return [policies.parse(name).awaited(turn) for turn in range(4)]

    assert awaited("sgp") == awaited("dpsgd") == awaited("osgp:tau=0") == [0, 1, 2, 3]
    assert awaited("osgp") == [None, 0, 1, 2]
    assert awaited("osgp:tau=2") == [None, None, 0, 1]
    assert awaited("adpsgd") == [None] * 4


def test_only_adpsgd_is_pairwise() -> None:
    assert [name for name in policies.names() if policies.get(name).pairwise] == ["adpsgd"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sgd", "no algorithm is called 'sgd'; did you mean dpsgd or sgp"),
        ("SPG", "did you mean"),
        ("zzz", "there are: adpsgd, dpsgd, local, osgp, sgp."),
        ("", "no algorithm is called ''"),
        ("sgp:tau=1", "sgp has no parameter 'tau'; its parameters: it has none"),
        ("osgp:tua=1", "osgp has no parameter 'tua'; its parameters: tau"),
        ("osgp:tau=x", "osgp: tau takes an integer, not 'x'"),
        ("osgp:tau=1.5", "osgp: tau takes an integer, not '1.5'"),
        ("osgp:tau=-1", "0 or more, not -1"),
        ("osgp:tau", "'tau' should read key=value"),
        ("osgp:tau=1,tau=2", "gives 'tau' twice"),
        ("local:h=0", "1 or more, not 0"),
        ("local:tau=-1", "0 or more, not -1"),
    ],
)
def test_an_algorithm_that_there_is_not_is_told_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        policies.parse(text)
    assert said in str(caught.value)


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


@pytest.mark.parametrize("name", ["base", "bidirectional-ring", "random-matching", "hypercube"])
@pytest.mark.parametrize("n", [2, 8])
def test_dpsgd_takes_the_topologies_that_it_recommends(name: str, n: int) -> None:
    policies.get("dpsgd").check(topologies.get(name, n))


@pytest.mark.parametrize("name", ["sgp", "osgp", "adpsgd"])
def test_the_others_take_any_topology(name: str) -> None:
    policies.get(name).check(topologies.get("ring", 8))
