"""``gossip keygen``: a new identity for a peer."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "keygen",
        help="make a key pair, by which a peer is admitted and its traffic encrypted",
        description="Writes DIR/public.key, which others put on their list of whom to admit, and DIR/secret.key, "
        "readable by its owner alone. Keys that are there already are not overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to write them; made if it is not there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the pair and show the public half."""
    from gossip.net.key_files import write_keys
    from gossip.net.transport import new_keys

    pair = new_keys()
    public, secret = write_keys(args.directory, pair)
    print(f"public key  {pair.public.decode()}  ({public})")
    print(f"secret key  {secret}, mode 0600: keep it to yourself")
    return 0
