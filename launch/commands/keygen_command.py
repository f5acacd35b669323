"""``gossip keygen``: make a new key pair for a peer, or a secret from which all peers have their keys."""

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
        "readable by its owner alone. With --shared, write one secret for all peers of a swarm. Existing files are not "
        "overwritten.",
        allow_abbrev=False,
    )
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument(
        "directory", nargs="?", type=Path, metavar="DIR", help="where to write them; created if it does not exist"
    )
    kinds.add_argument(
        "--shared", type=Path, metavar="FILE", help="write a secret that all peers share, for secret_file"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the pair and show the public half, or write the secret."""
    if args.shared:
        from gossip.net.shared_secret import write_secret

        write_secret(args.shared)
        print(f"secret  {args.shared}, mode 0600: give it to all peers, and to nobody else")
        return 0
    from gossip.net.key_files import write_keys
    from gossip.net.zmq_transport import new_keys

    pair = new_keys()
    public, secret = write_keys(args.directory, pair)
    print(f"public key  {pair.public.decode()}  ({public})")
    print(f"secret key  {secret}, mode 0600: keep it to yourself")
    return 0
