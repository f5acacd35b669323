"""``gossip keygen``: make a new key pair for a peer."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "keygen",
        help="make a key pair, which identifies a peer and encrypts its traffic",
        description="Write DIR/public.key, which other peers add to their list of admitted keys, and DIR/secret.key, "
        "readable by its owner alone. Existing keys are not overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to write them; created if it does not exist")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the pair and show the public half."""
    from gossip.net.key_files import write_keys
    from gossip.net.zmq_transport import new_keys

    pair = new_keys()
    public, secret = write_keys(args.directory, pair)
    print(f"public key  {pair.public.decode()}  ({public})")
    print(f"secret key  {secret}, mode 0600: keep it to yourself")
    return 0
