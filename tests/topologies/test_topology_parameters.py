"""Every parameter of every topology refuses what is no value for it, and says what is."""

from __future__ import annotations

import math

import pytest
from topology_cases import NAMES

import topologies
from topologies import BadParameter

NAN = math.nan

#: What a type refuses, and in which words.
NOT_INTEGERS = ([True, False, 2.0, 2.5, NAN, "x", "2.5", "", "nan", (2,), {}], "an integer")
NOT_NUMBERS = ([True, "x", "", "0,5", (0.5,), {}], "a number")
NOT_WORDS = ([True, 3, 0.5, ("ring",), {}], "a word")
NOT_LISTS = ([True, 3, 0.5, {}], "a list like 4+4+8")
NOT_GROUPS = ([True, 2.0, NAN, {}], "an integer or a list like 4+4+8 or none")

ILL_TYPED = {
    ("base", "k"): NOT_INTEGERS,
    ("de-bruijn", "d"): NOT_INTEGERS,
    ("epidemic", "s"): NOT_INTEGERS,
    ("epidemic", "seed"): NOT_INTEGERS,
    ("epidemic-regular", "s"): NOT_INTEGERS,
    ("epidemic-regular", "seed"): NOT_INTEGERS,
    ("equidyn", "eta"): NOT_NUMBERS,
    ("equidyn", "seed"): NOT_INTEGERS,
    ("equidyn-undirected", "eta"): NOT_NUMBERS,
    ("equidyn-undirected", "seed"): NOT_INTEGERS,
    ("equistatic", "m"): NOT_INTEGERS,
    ("equistatic", "seed"): NOT_INTEGERS,
    ("erdos-renyi", "p"): NOT_NUMBERS,
    ("erdos-renyi", "seed"): NOT_INTEGERS,
    ("hierarchical", "between"): NOT_WORDS,
    ("hierarchical", "groups"): NOT_GROUPS,
    ("hierarchical", "hosts"): NOT_LISTS,
    ("hierarchical", "seed"): NOT_INTEGERS,
    ("kautz", "d"): NOT_INTEGERS,
    ("matcha", "budget"): NOT_NUMBERS,
    ("matcha", "graph"): NOT_WORDS,
    ("matcha", "seed"): NOT_INTEGERS,
    ("random-matching", "seed"): NOT_INTEGERS,
    ("random-regular", "d"): NOT_INTEGERS,
    ("random-regular", "seed"): NOT_INTEGERS,
    ("torus", "rows"): NOT_INTEGERS,
}

#: What is of the right type and still no value, for n = 12, and in which words it is refused.
OUT_OF_RANGE = {
    ("base", "k"): ([0, -1, "0", "-3"], "k, .*, must be at least 1, not"),
    ("de-bruijn", "d"): ([1, 0, -2, "1"], "d, .*, must be at least 2, not"),
    ("epidemic", "s"): ([0, -1, "0"], "s, .*, must be at least 1, not"),
    ("epidemic-regular", "s"): ([0, -1, "0"], "s, .*, must be at least 1, not"),
    ("equidyn", "eta"): ([0, -0.5, 1.01, NAN, math.inf, "nan", "2"], "eta must be .* above 0 and at most 1, not"),
    ("equidyn-undirected", "eta"): ([0.0, -1, 1.01, NAN, "inf"], "eta must be .* above 0 and at most 1, not"),
    ("equistatic", "m"): ([0, -1, "0"], "m, .*, must be at least 1, not"),
    ("erdos-renyi", "p"): ([0, -0.5, 1.01, NAN, "nan"], "p must be .* above 0 and at most 1, not"),
    ("hierarchical", "between"): (["base:k=0"], "between: base: k, .*, must be at least 1"),
    ("hierarchical", "groups"): (
        [0, 13, -1, (4, 4), (12, 0), "4+4", (6, -6, 12), "a+b"],
        "hierarchical: groups (must be|takes)",
    ),
    ("hierarchical", "hosts"): ([("a", "b"), "a+b+c", "a"], "hosts lists \\d hosts? for 12 peers"),
    ("kautz", "d"): ([1, 0, -2, "1"], "d, .*, must be at least 2, not"),
    ("matcha", "budget"): ([0, -0.5, 1.01, NAN, "nan"], "budget must be .* above 0 and at most 1, not"),
    ("matcha", "graph"): (["ring", "epidemic", "base"], "graph must (be undirected|be the same)"),
    ("random-regular", "d"): ([0, -1, "0"], "d, .*, must be at least 1, not"),
    ("torus", "rows"): ([0, 5, -3, 24, "7"], "rows must divide n = 12: it can be 1, 2, 3, 4, 6, 12, not"),
}


def declared() -> set[tuple[str, str]]:
    return {(name, parameter) for name in NAMES for parameter in topologies.describe(name).parameters}


def test_the_tables_speak_of_every_parameter() -> None:
    assert set(ILL_TYPED) == declared()
    assert set(OUT_OF_RANGE) == {case for case in declared() if case[1] != "seed"}


@pytest.mark.parametrize(("name", "parameter"), ILL_TYPED, ids=lambda value: value)
def test_an_ill_typed_value_is_refused_with_what_is_allowed(name: str, parameter: str) -> None:
    values, allowed = ILL_TYPED[name, parameter]
    for value in values:
        with pytest.raises(BadParameter) as caught:
            topologies.get(name, 12, **{parameter: value})
        message = str(caught.value)
        assert message.startswith(f"{name}: {parameter} takes {allowed}")
        assert repr(value) in message


@pytest.mark.parametrize(("name", "parameter"), OUT_OF_RANGE, ids=lambda value: value)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(name: str, parameter: str) -> None:
    values, complaint = OUT_OF_RANGE[name, parameter]
    for value in values:
        with pytest.raises(BadParameter, match=complaint) as caught:
            topologies.get(name, 12, **{parameter: value})
        assert str(caught.value).startswith(name)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(
        BadParameter, match=f"{name} has no parameter 'colour'; it(s parameters: | takes no parameters)"
    ) as caught:
        topologies.get(name, 4, colour=3)
    others = [key for key in topologies.describe(name).parameters if key != "seed"]
    assert all(key in str(caught.value) for key in others)
    assert ("it takes no parameters" in str(caught.value)) == (not others)


@pytest.mark.parametrize(
    ("name", "parameter", "given", "taken"),
    [
        ("base", "k", "3", 3),
        ("base", "k", " 3 ", 3),
        ("equidyn", "eta", 1, 1.0),
        ("equidyn", "eta", "1e-3", 0.001),
        ("erdos-renyi", "p", None, None),
        ("equistatic", "m", None, None),
        ("torus", "rows", None, None),
        ("hierarchical", "groups", [6, 6], (6, 6)),
        ("hierarchical", "groups", "6+6", (6, 6)),
        ("hierarchical", "groups", "3", 3),
        ("hierarchical", "hosts", list("aabbccddeeff"), tuple("aabbccddeeff")),
        ("hierarchical", "hosts", "+".join("aabbccddeeff"), tuple("aabbccddeeff")),
        ("epidemic", "seed", "-7", -7),
    ],
)
def test_a_good_value_is_taken_in_the_declared_type(name: str, parameter: str, given: object, taken: object) -> None:
    value = topologies.get(name, 12, **{parameter: given}).parameters[parameter]
    assert value == taken
    assert type(value) is type(taken)


def test_parameters_cannot_be_changed_afterwards() -> None:
    with pytest.raises(TypeError):
        topologies.get("base", 12).parameters["k"] = 2


@pytest.mark.parametrize(("n", "d", "hint"), [(5, 3, "d=2 or d=4, or n = 4 or n = 6"), (9, 5, "d=4 or d=6")])
def test_an_odd_number_of_link_ends_is_refused_with_what_to_do(n: int, d: int, hint: str) -> None:
    with pytest.raises(BadParameter, match=f"n \\* d must be even, and {n} \\* {d} is odd: use {hint}"):
        topologies.get("random-regular", n, d=d)
    for even in (d - 1, d + 1):
        assert topologies.get("random-regular", n, d=even).n == n


def test_a_single_link_each_is_refused_beyond_two_peers() -> None:
    assert topologies.get("random-regular", 2, d=1).out_edges(0, 0) == ((1, 0.5),)
    with pytest.raises(BadParameter, match="d=1 is not connected for n = 4: use d=2 or more"):
        topologies.get("random-regular", 4, d=1)


def test_too_few_links_to_be_connected_are_refused_with_the_threshold() -> None:
    with pytest.raises(
        BadParameter,
        match=r"n = 100 and p=0\.001 were all disconnected; use a larger p, clearly above ln n / n = 0\.0461",
    ):
        topologies.get("erdos-renyi", 100, p=0.001)
