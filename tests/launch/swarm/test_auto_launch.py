"""`gossip launch --algorithm auto`: the launcher decides once, says why, and tells the peers a method by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossip.errors import SettingsError
from launch.cli import main
from launch.options.options import LaunchOptions
from launch.swarm.launching import _write_config, planned


def script(directory: Path) -> str:
    path = directory / "train.py"
    path.write_text("")
    return str(path)


def options(directory: Path, **given: object) -> LaunchOptions:
    known: dict[str, object] = {"link": "50Mbit", "step_time": 0.25, "parameters": 10_000_000, **given}
    return LaunchOptions(script(directory), algorithm="auto", run_dir=str(directory / "run"), **known)  # type: ignore[arg-type]


def test_peers_are_told_a_method_by_name(tmp_path: Path) -> None:
    plan, _ = planned(options(tmp_path, peers=8))
    told = [plan.process(seat, {}).setup for seat in plan.seats]
    assert {(one["algorithm"], one["compress"], one["share"], one["link"]) for one in told} == {
        ("osgp", "int8", 0.125, "50Mbit")
    }
    assert plan.chosen is not None
    assert plan.common["topology"] == "one-peer-exponential"


def test_the_number_of_peers_the_link_and_slow_peers_count(tmp_path: Path) -> None:
    def algorithm(**given: object) -> str:
        return str(planned(options(tmp_path, **given))[0].common["algorithm"])

    assert algorithm(peers=8, link="1Mbit") == "outer:h=32"
    assert algorithm(peers=8, link="1Mbit", step_time=3.0, straggler=("3=30x",)) == "osgp"
    assert algorithm(peers=1) == "sgp"


def test_hosts_of_a_hostfile_are_a_local_network_unless_a_preset_says_otherwise(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=2\nb slots=2\n")
    far, _ = planned(options(tmp_path, hostfile=str(hosts), link=""))
    assert far.common["link"] == "lan"
    here, _ = planned(options(tmp_path, peers=4, link=""))
    assert here.common["link"] == "loopback"
    away, _ = planned(options(tmp_path, hostfile=str(hosts), link="", preset="wan"))
    assert away.common["link"] == "wan"


def test_the_choice_and_its_reason_are_printed_and_a_dry_run_lists_the_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["launch", "-n", "8", "--algorithm", "auto", "--link", "50Mbit,1ms", "--step-time", "250ms"]
    assert main([*arguments, "--dry-run", script(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "gossip: --algorithm auto chose osgp with int8, 12.5% of the shards: 0.2 s of sending hidden"
    )
    assert "Assumed, because it is not known: 10,000,000 parameters\n" in said
    assert "\nalgorithm: osgp\n" in said
    assert "\nshare: 0.125\n" in said


def test_the_record_of_a_run_names_the_method_and_why(tmp_path: Path) -> None:
    asked = options(tmp_path, peers=8)
    plan, _ = planned(asked)
    plan.run_dir.mkdir()
    _write_config(plan, asked)
    written = (plan.run_dir / "config.toml").read_text()
    assert "\n# --algorithm auto chose osgp with int8, 12.5% of the shards" in written
    again = LaunchOptions.gathered(_nothing(), plan.run_dir / "config.toml")
    assert (again.algorithm, again.compress, again.share, again.link) == ("osgp", "int8", 0.125, "50Mbit")


def _nothing() -> object:
    class Nothing:
        def __getattr__(self, name: str) -> None:
            return None

    return Nothing()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"link": "slow"}, "'slow' is not a link"),
        ({"compress": "int4"}, "knows no method with compress=int4"),
        ({"compress": "auto", "share": 0.5}, "leave share=0.5 out"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path, given: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        planned(options(tmp_path, peers=4, **given))
