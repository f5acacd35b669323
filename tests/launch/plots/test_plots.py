"""Pictures: valid files, a panel for each step, one line for each link."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection, EllipseCollection, LineCollection, PolyCollection
from matplotlib.figure import Figure

import topologies
from launch import cli
from launch.catalog.edge_list import links_at
from launch.catalog.topologies_table import Row, measure
from launch.plots import curves as plot_curves
from launch.plots import schedule_plot as plots
from launch.user_errors import CommandError

Capture = pytest.CaptureFixture[str]


def drawn(axes: Axes, kind: type[Collection]) -> list[np.ndarray]:
    """Return the corners of everything of a kind in a panel; of peers, where they are."""
    (collection,) = (c for c in axes.collections if type(c) is kind)
    if kind is EllipseCollection:
        return list(np.asarray(collection.get_offsets()))
    return [np.asarray(path.vertices) for path in collection.get_paths()]


def panels(figure: Figure) -> list[tuple[int, int, int]]:
    """Return how many links, arrow heads and peers each panel shows."""
    return [
        (len(drawn(axes, LineCollection)), len(drawn(axes, PolyCollection)), len(drawn(axes, EllipseCollection)))
        for axes in figure.axes
        if axes.collections
    ]


@pytest.mark.parametrize("n", [1, 2, 6, 16, 33])
@pytest.mark.parametrize("name", ["ring", "base", "one-peer-exponential", "star", "hierarchical", "epidemic"])
def test_a_panel_for_each_step_with_its_links(name: str, n: int) -> None:
    schedule = topologies.get(name, n)
    expected = []
    for step in range(schedule.period or 6):
        links = links_at(schedule, step)
        expected.append((len(links), sum(not link.both for link in links), n))
    assert panels(plots.figure(schedule)) == expected


def test_labels_and_title_name_what_is_seen() -> None:
    figure = plots.figure(topologies.get("base", 33, k=2))
    assert figure.get_suptitle() == "base (k=2), 33 peers\nall 6 steps, which then repeat"
    assert [axes.get_title() for axes in figure.axes] == [f"step {i}" for i in range(6)]
    assert [text.get_text() for text in figure.axes[0].texts] == [str(rank) for rank in range(33)]


def test_a_long_parameter_does_not_burst_the_title() -> None:
    schedule = topologies.get("hierarchical", 33, hosts=("host",) * 20 + ("other",) * 13)
    first = plots.figure(schedule).get_suptitle().splitlines()[0]
    assert first.startswith("hierarchical (hosts=host+host+")
    assert len(first) < 100


def test_the_legend_names_the_fractions() -> None:
    figure = plots.figure(topologies.get("base", 33))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0.5", "32/33"]
    assert legend.get_title().get_text() == "fraction sent, each way; the rest is kept; white: idle in this step"


def test_many_fractions_are_sampled() -> None:
    (legend,) = plots.figure(topologies.get("erdos-renyi", 33)).legends
    assert len(legend.get_texts()) == 6
    assert "(6 of " in legend.get_title().get_text()


def test_steps_chooses_the_panels_up_to_a_limit() -> None:
    assert len(panels(plots.figure(topologies.get("ring", 4), 3))) == 3
    with pytest.raises(CommandError, match="room for 48 steps, not 49"):
        plots.figure(topologies.get("ring", 4), 49)


def test_too_many_links_are_refused() -> None:
    with pytest.raises(CommandError, match="too many links to draw"):
        plots.figure(topologies.get("complete", 400))


def test_lines_start_and_end_at_their_peers_rims() -> None:
    schedule = topologies.get("one-peer-hypercube", 16)
    for step, axes in enumerate(plots.figure(schedule).axes):
        lines = drawn(axes, LineCollection)
        angles = np.pi / 2 - 2 * np.pi * np.arange(16) / 16
        at = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for link, line in zip(links_at(schedule, step), lines, strict=True):
            for end, rank in ((line[0], link.tail), (line[-1], link.head)):
                assert np.argmin(np.linalg.norm(at - end, axis=1)) == rank
                assert np.linalg.norm(at[rank] - end) < 0.08


def test_arrows_point_at_their_head() -> None:
    (axes,) = plots.figure(topologies.get("ring", 6)).axes
    heads = drawn(axes, PolyCollection)
    at_one = np.array([np.cos(np.pi / 6), np.sin(np.pi / 6)])  # rank 1, clockwise from the top
    distances = np.linalg.norm(heads[0][:3] - at_one, axis=1)
    assert np.argmin(distances) == 0, "the tip is nearest to where 0 sends to"


def test_svg_and_png_are_written(capsys: Capture, tmp_path: Path) -> None:
    svg, png = tmp_path / "p.svg", tmp_path / "p.PNG"
    assert cli.main(["topologies", "base", "-n", "6", "--plot", str(svg)]) == 0
    assert capsys.readouterr().out.startswith("base of 6 peers")
    root = ElementTree.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    ids = [element.get("id") or "" for element in root.iter()]
    assert sum(name.startswith("axes_") for name in ids) == topologies.get("base", 6).period
    assert cli.main(["topologies", "-n", "6", "--plot", str(png)]) == 0
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1265, 825)


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plots.save(plots.figure(topologies.get("base", 6)), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_path_that_cannot_be_written(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "taken.svg"
    path.mkdir()
    assert cli.main(["topologies", "base", "-n", "4", "--plot", str(path)]) == 2
    assert capsys.readouterr().err == f"gossip: error: --plot {path}: the file cannot be written: Is a directory\n"


def test_without_matplotlib_it_says_how_to_get_it(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["topologies", "base", "--plot", "p.svg"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        err
        == "gossip: error: --plot p.svg needs matplotlib, which is not installed: pip install 'gossip-runtime[plot]'\n"
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return measure(33, 0)


def test_every_curve_is_in_the_legend_fastest_first(rows: list[Row]) -> None:
    (axes,) = plot_curves.figure(rows).axes
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[0] == "complete: 1"
    assert labels[-1] == "ring: 4567"
    steps = [int(label.rsplit(": ", 1)[1]) for label in labels]
    assert steps == sorted(steps)
    named = {name.removesuffix(" *") for label in labels for name in label.rsplit(": ", 1)[0].split(", ")}
    assert named == {row.topology.name for row in rows if row.analysis}
    assert axes.get_title().endswith("not for this n: hypercube, one-peer-hypercube")


def test_curves_are_the_disagreement(rows: list[Row]) -> None:
    (axes,) = plot_curves.figure(rows).axes
    (line,) = (line for line in axes.lines if line.get_label() == "base: 11")
    expected = np.array(topologies.analysis.disagreement(topologies.get("base", 33), 11))
    drawn = np.asarray(line.get_ydata())
    assert drawn[:11] == pytest.approx(expected[:11])
    assert drawn[11] <= 1e-10
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_linestyle() != "None"]
    exact = sum(1 for line in axes.lines if line.get_marker() == "o")
    assert exact == sum(row.analysis is not None and row.analysis.exact_after is not None for row in rows)
    assert len(set(looks)) >= len(axes.get_legend().get_texts())  # type: ignore[union-attr]


def test_larger_swarms_follow_random_values() -> None:
    small = [row for row in measure(65, 0) if row.topology.name in ("base", "ring")]
    (axes,) = plot_curves.figure(small).axes
    assert axes.get_ylabel().endswith("from random values")
    assert np.asarray(axes.lines[0].get_ydata())[0] == 1.0
