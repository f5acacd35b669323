"""Finding a topology by name, the grammar of the command line, and adding one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from topology_cases import NAMES

import topologies
from topologies import BadParameter, Plan, TopologyError, UnknownTopology, registry
from topologies.naming import Catalog
from topologies.plans import shifts, uniform


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, topologies.Topology]]:
    """A copy of the registry, so that what a test registers is gone after it."""
    copy = Catalog("topology", UnknownTopology, registry._REGISTRY)
    monkeypatch.setattr(registry, "_REGISTRY", copy)
    yield copy
    monkeypatch.undo()
    assert topologies.names() == NAMES


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("expnential", "exponential"),
        ("Ring", "ring"),
        ("one_peer_exponential", "one-peer-exponential"),
        ("debruijn", "de-bruijn"),
        ("hyper-cube", "hypercube"),
        ("epidemc", "epidemic"),
        ("matching", "random-matching"),
    ],
)
def test_an_unknown_name_gets_the_closest(typed: str, meant: str) -> None:
    for ask in (topologies.describe, lambda name: topologies.get(name, 4), lambda name: topologies.parse(name, 4)):
        with pytest.raises(UnknownTopology, match=rf"{typed!r}; did you mean .*\b{meant}\b.*\?$"):
            ask(typed)


@pytest.mark.parametrize("typed", ["", "qqqq", "42"])
def test_a_name_like_no_other_gets_all_of_them(typed: str) -> None:
    with pytest.raises(UnknownTopology) as caught:
        topologies.get(typed, 4)
    assert all(name in str(caught.value) for name in NAMES)


def test_every_topology_describes_itself() -> None:
    for name in NAMES:
        topology = topologies.describe(name)
        assert topology.name == name
        assert topology.summary.endswith(".")
        assert topology.sizes
        assert topology.random == ("seed" in topology.parameters)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("base", {"k": 1}),
        (" base ", {"k": 1}),
        ("base:k=4", {"k": 4}),
        (" base : k = 4 ", {"k": 4}),
        ("equidyn:eta=0.25", {"eta": 0.25, "seed": 5}),
        ("equidyn:eta=1", {"eta": 1.0, "seed": 5}),
        ("equidyn:seed=9,eta=0.25", {"eta": 0.25, "seed": 9}),  # the seed in the text wins
        ("epidemic:seed=9", {"s": 1, "seed": 9}),
        ("epidemic:s=[2]", {"s": 2, "seed": 5}),
        ("ring:seed=9", {}),
        (
            "hierarchical:between=[epidemic:s=2,seed=3],groups=4+4",
            {"between": "epidemic:s=2,seed=3", "groups": (4, 4), "hosts": None, "seed": 5},
        ),
        (
            "hierarchical:hosts=a+a+a+a+b+b+b+b",
            {"between": "base", "groups": None, "hosts": tuple("aaaabbbb"), "seed": 5},
        ),
    ],
)
def test_the_command_line_says_name_and_parameters(text: str, parameters: dict[str, object]) -> None:
    schedule = topologies.parse(text, 8, seed=5)
    assert schedule.name == text.partition(":")[0].strip()
    assert dict(schedule.parameters) == parameters
    assert {key: type(value) for key, value in schedule.parameters.items()} == {
        key: type(value) for key, value in parameters.items()
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("base:", r"'' is not of the form key=value"),
        ("base:k", r"'k' is not of the form key=value"),
        ("base:k=", r"'k=' is not of the form key=value"),
        ("base:=1", r"'=1' is not of the form key=value"),
        ("base:k=1,", r"'' is not of the form key=value"),
        ("base:,k=1", r"'' is not of the form key=value"),
        ("base:k=1,k=2", r"gives 'k' twice"),
        ("base:k=1, k=1", r"gives 'k' twice"),
        ("equidyn:seed=1,seed=1", r"gives 'seed' twice"),
        ("equidyn:seed=x", r"equidyn: seed takes an integer, not 'x'"),
        ("ring:seed=1.5", r"ring: seed takes an integer, not '1.5'"),
        ("hierarchical:between=[base:k=1", r"brackets in 'between=\[base:k=1' do not match"),
        ("hierarchical:between=base]", r"brackets in .* do not match"),
        ("base:depth=3", r"base has no parameter 'depth'; its parameters: k$"),
        ("ring:k=1", r"ring has no parameter 'k'; it takes no parameters"),
    ],
)
def test_a_text_that_does_not_parse_says_where(text: str, complaint: str) -> None:
    with pytest.raises(BadParameter, match=complaint):
        topologies.parse(text, 8)


def test_an_unknown_name_comes_before_its_parameters() -> None:
    with pytest.raises(UnknownTopology, match="did you mean base"):
        topologies.parse("bas:seed=x", 8)


def test_a_file_is_read_after_an_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "three.edges"
    path.write_text("0 1\n1 2\n2 0\n")
    assert topologies.parse(f"@{path}", 3).out_edges(2, 0) == ((0, 0.5),)
    with pytest.raises(BadParameter, match=r"three\.edges is a graph of 3 peers, but the run has 4"):
        topologies.parse(f"@{path}", 4)
    with pytest.raises(topologies.BadGraph, match=r"four\.edges: cannot be read"):
        topologies.parse(f"@{tmp_path / 'four.edges'}", 3)


@pytest.mark.parametrize("n", [0, -1, True, False, 2.5, 2.0, "3", None, [3]])
def test_the_number_of_peers_is_a_positive_integer(n: object) -> None:
    with pytest.raises(BadParameter, match="base: n, the number of peers, must be an integer of at least 1, not "):
        topologies.get("base", n)


def test_a_topology_of_ones_own_is_usable_at_once(own_registry: dict[str, topologies.Topology]) -> None:
    @topologies.register("skip-ring", directed=True, sizes="any", paper="nobody, never")
    def skip_ring(n: int, *, hop: int = 2, lazy: bool = False, seed: int = 0) -> Plan:
        """Each sends to the one after next.

        More text that is no summary.
        """
        return shifts(n, 1, lambda _: [] if lazy else uniform(n, [hop + seed]))

    assert "skip-ring" in own_registry
    assert topologies.names() == sorted([*NAMES, "skip-ring"])
    found = topologies.describe("skip-ring")
    assert (found.summary, found.paper, found.random) == ("Each sends to the one after next.", "nobody, never", True)
    assert topologies.get("skip-ring", 7, seed=1).out_edges(0, 0) == ((3, 0.5),)
    assert topologies.parse("skip-ring:hop=5", 7).out_edges(0, 0) == ((5, 0.5),)
    assert topologies.parse("skip-ring:lazy=yes", 7).out_edges(0, 0) == ()
    assert topologies.parse("hierarchical:groups=7,between=skip-ring", 7).out_edges(0, 0) == ((2, 0.5),)
    with pytest.raises(BadParameter, match="skip-ring: lazy takes true or false, not 'maybe'"):
        topologies.parse("skip-ring:lazy=maybe", 7)
    with pytest.raises(BadParameter, match="skip-ring: lazy takes true or false, not 1"):
        topologies.get("skip-ring", 7, lazy=1)
    assert skip_ring(3).period == 1, "the decorator returns the function as it was"


@pytest.mark.usefixtures("own_registry")
def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(TopologyError, match="a topology called 'ring' is already registered"):
        topologies.register("ring", directed=True)(lambda _: Plan(1, lambda *_: (), lambda *_: ()))
    assert topologies.get("ring", 3).out_edges(0, 0) == ((1, 0.5),)


@pytest.mark.parametrize("name", ["", "My-Ring", "my ring", "my_ring", "my-", "-my", "my--ring", "a:b"])
def test_a_name_that_cannot_be_typed_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="lower-case words joined by hyphens"):
        topologies.register(name, directed=True)


def positional(n: int, hop: int = 2) -> Plan: ...
def without_default(n: int, *, hop: int) -> Plan: ...
def unannotated(n: int, *, hop=2) -> Plan: ...
def oddly_annotated(n: int, *, hop: complex = 2) -> Plan: ...
def anything(n: int, **hop: int) -> Plan: ...


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("build", [positional, without_default, unannotated, oddly_annotated, anything])
def test_a_signature_that_says_too_little_is_refused(build: object) -> None:
    with pytest.raises(TopologyError, match=r"my-ring: .*'hop'.*(keyword-only, with a default|one of int, float)"):
        topologies.register("my-ring", directed=True)(build)
    assert "my-ring" not in topologies.names()


def install(folder: Path, module: str) -> None:
    """Write what a package with an entry point looks like when it is installed."""
    (folder / "mytopologies.py").write_text(module)
    metadata = folder / "mypackage-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gossip.topologies]\nmine = mytopologies\n")


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(topologies.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), source])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)


def test_an_installed_package_adds_a_topology(tmp_path: Path) -> None:
    install(
        tmp_path,
        "import topologies\n"
        "from topologies.plans import shifts, uniform\n"
        "@topologies.register('from-a-package', directed=True)\n"
        "def build(n: int) -> topologies.Plan:\n"
        "    return shifts(n, 1, lambda _: uniform(n, [3]))\n",
    )
    ask = "print('from-a-package' in topologies.names(), topologies.get('from-a-package', 9).out_edges(0, 0))"
    done = run(tmp_path, f"import topologies; {ask}")
    assert (done.stdout.strip(), done.stderr) == ("True ((3, 0.5),)", "")


def test_a_broken_package_is_named(tmp_path: Path) -> None:
    install(tmp_path, "import a_module_that_is_not_there\n")
    done = run(tmp_path, "import topologies; topologies.names()")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "TopologyError: the entry point 'mine' (mytopologies) of the group gossip.topologies" in last
    assert "a_module_that_is_not_there" in last
    assert "uninstall" in last
