"""What ``gossip topologies`` shows: the table of all, one in detail, how fast each mixes."""
