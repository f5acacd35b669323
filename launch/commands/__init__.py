"""The subcommands of ``gossip``, one file each, and the arguments that they share."""
