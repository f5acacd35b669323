"""Slurm's short form of lists of hosts."""

from __future__ import annotations

import re

import pytest

from gossip.errors import SettingsError
from peers.host_lists import expanded, split_list


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n0", ["n0"]),
        ("n[0-2,7],gpu-03", ["n0", "n1", "n2", "n7", "gpu-03"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[001,3-4]", ["n001", "n3", "n4"]),
        ("n[5]", ["n5"]),
        ("n[5-5]", ["n5"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
        ("r[0-1]n[2-3]", ["r0n2", "r0n3", "r1n2", "r1n3"]),
        ("n[0-1]-ib", ["n0-ib", "n1-ib"]),
        ("[0-1]", ["0", "1"]),
        ("a.example.org,b[1-2].example.org", ["a.example.org", "b1.example.org", "b2.example.org"]),
        ("train-[0-1].train:7000", ["train-0.train:7000", "train-1.train:7000"]),
        ("n2,n[0-1]", ["n2", "n0", "n1"]),
        ("n[2,0]", ["n2", "n0"]),
        ("n[0-65535]", [f"n{number}" for number in range(65536)]),
    ],
)
def test_a_list_is_expanded_in_its_order(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "n[0-2",
        "n0-2]",
        "n[]",
        "n[a-b]",
        "n[2-0]",
        "n[0--2]",
        "n[-2]",
        "n[0-2,]",
        "n[[0]]",
        "n[1-2-3]",
        "n[\N{SUPERSCRIPT TWO}]",
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(repr(text)) + " is not a list of hosts"):
        expanded(text)


@pytest.mark.parametrize(
    "text",
    ["n[0-65536]", "n[0-999999999]", "n[0-999]m[0-999]", "n[0-40000],m[0-40000]", "a[0-99]b[0-99]c[0-99]d[0-99]"],
)
def test_an_absurd_number_of_hosts_is_refused_at_once(text: str) -> None:
    with pytest.raises(SettingsError, match="stands for more than 65536 hosts: check its ranges"):
        expanded(text)


def test_a_comma_in_brackets_divides_nothing() -> None:
    assert split_list("a[0,2]:1, b:2  c") == ["a[0,2]:1", "b:2", "c"]
