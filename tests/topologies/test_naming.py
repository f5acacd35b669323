"""Things by name: what an unknown name or parameter is told, for all kinds alike."""

from __future__ import annotations

import pytest

from gossip import codecs, policies, presets
from gossip.errors import SettingsError
from gossip.membership import membership_preset
from topologies.naming import Catalog, ClassCatalog


class Apple:
    """A fruit.

    Red, mostly.
    """

    name = "apple"

    def __init__(self, *, size: int = 3) -> None:
        self.size = size


class Pear:
    """Another fruit."""

    name = "pear"


FRUIT: ClassCatalog[object] = ClassCatalog("fruit", LookupError, (Pear, Apple))


def test_things_are_found_by_name_in_the_order_that_they_have() -> None:
    numbers: Catalog[int] = Catalog("number", LookupError, {"two": 2, "one": 1})
    assert (numbers["one"], list(numbers), numbers.names()) == (1, ["two", "one"], ["one", "two"])
    with pytest.raises(LookupError, match="no number is called 'tow'; did you mean two"):
        numbers["tow"]


def test_a_class_is_made_of_its_text() -> None:
    assert FRUIT.names() == ["apple", "pear"]
    assert FRUIT.summary("apple") == "A fruit."
    made = FRUIT.parse("apple:size=5")
    assert isinstance(made, Apple)
    assert made.size == 5
    assert isinstance(FRUIT.make("pear"), Pear)
    assert list(FRUIT.parameters("apple")) == ["size"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aple", r"^no fruit is called 'aple'; did you mean apple or pear\?$"),
        ("zzz", r"^no fruit is called 'zzz'; there are: apple, pear\.$"),
        ("apple:size=big", r"^apple: size takes an integer, not 'big'$"),
        ("apple:colour=1", r"^apple has no parameter 'colour'; its parameters: size$"),
        ("pear:size=1", r"^pear has no parameter 'size'; it takes no parameters; fruits that have it: apple$"),
        ("apple:size", r"^'apple:size': 'size' is not of the form key=value$"),
    ],
)
def test_a_mistake_says_what_there_is(text: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        FRUIT.parse(text)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda: codecs.get("int9"), "no codec is called 'int9'; did you mean"),
        (lambda: codecs.parse("int8:share=1"), "int8 has no parameter 'share'.*; codecs that have it: topk"),
        (lambda: policies.get("sgd"), "no algorithm is called 'sgd'; did you mean"),
        (lambda: policies.parse("sgp:tau=1"), "sgp has no parameter 'tau'.*; algorithms that have it: .*osgp"),
        (lambda: presets.preset("lna"), "no preset is called 'lna'; did you mean lan"),
        (lambda: membership_preset("lna"), "no preset is called 'lna'; did you mean lan"),
    ],
)
def test_all_kinds_tell_alike(look: object, message: str) -> None:
    assert callable(look)
    with pytest.raises(SettingsError, match=message):
        look()


def test_presets_go_from_near_to_far() -> None:
    assert presets.names() == ["loopback", "lan", "wan"]
