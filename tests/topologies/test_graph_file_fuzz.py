"""Whatever a file holds, it is a schedule or a `BadGraph`; nothing else ever comes out of reading it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from topologies import BadGraph, Schedule

SUFFIXES = [".graphml", ".json", ".edges"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def read(folder: Path, suffix: str, content: bytes) -> Schedule | None:
    path = folder / f"fuzz{suffix}"
    path.write_bytes(content)
    try:
        schedule = topologies.from_file(path)
    except BadGraph:
        return None
    # What is accepted must also work.
    for step in range(schedule.period or 0):
        for rank in range(schedule.n):
            total = sum(fraction for _, fraction in schedule.out_edges(rank, step)) + schedule.kept(rank, step)
            assert abs(total - 1) < 2e-9
    return schedule


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=300)
@given(content=st.binary(max_size=200))
def test_any_bytes(folder: Path, suffix: str, content: bytes) -> None:
    read(folder, suffix, content)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=200)
@given(content=st.text(max_size=100))
def test_any_text(folder: Path, suffix: str, content: str) -> None:
    read(folder, suffix, content.encode("utf-8", errors="surrogatepass"))


words = st.sampled_from(["0", "1", "2", "n1", "-1", "x", "0.5", "1", "1e0", "nan", "inf", "-0", "1e999", "²", ","])
lines = st.lists(st.lists(words, max_size=4).map(" ".join), max_size=6)


@settings(max_examples=500)
@given(content=lines)
def test_lines_that_are_nearly_an_edge_list(folder: Path, content: list[str]) -> None:
    read(folder, ".edges", "\n".join(content).encode())


elements = st.sampled_from(
    [
        '<node id="0"/>',
        '<node id="1"/>',
        '<node id="n1"/>',
        "<node/>",
        '<edge source="0" target="1"/>',
        '<edge source="0" target="0"/>',
        '<edge id="e" source="1" target="0"/>',
        '<edge source="0"/>',
        '<edge source="0" target="1"><data key="w">0.5</data></edge>',
        '<edge source="0" target="0"><data key="w">0.5</data></edge>',
        '<edge source="1" target="1"><data key="w">1</data></edge>',
        '<edge source="1" target="0"><data key="w">x</data></edge>',
        '<edge source="0" target="1"><data key="w"/></edge>',
        '<edge source="0" target="1"><data key="q">1</data></edge>',
        '<data key="w">1</data>',
        "<hyperedge/>",
        "<graph/>",
        "</graph>",
        "&what;",
    ]
)


@settings(max_examples=500)
@given(body=st.lists(elements, max_size=6), kind=st.sampled_from(["directed", "undirected", "maybe"]))
def test_elements_that_are_nearly_a_graphml_file(folder: Path, body: list[str], kind: str) -> None:
    content = (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'
        f'<graph edgedefault="{kind}">{"".join(body)}</graph></graphml>'
    )
    read(folder, ".graphml", content.encode())


@settings(max_examples=60)
@given(st.data())
def test_a_good_file_cut_short_or_with_a_byte_changed(folder: Path, data: st.DataObject) -> None:
    good = {
        ".edges": b"0 1 0.5\n0 0 0.5\n1 1 1\n",
        ".json": b'{"directed": true, "nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1}]}',
    }
    suffix = data.draw(st.sampled_from(sorted(good)))
    content = good[suffix]
    assert read(folder, suffix, content) is not None
    at = data.draw(st.integers(0, len(content) - 1))
    read(folder, suffix, content[:at])
    read(folder, suffix, content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :])
