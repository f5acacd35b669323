"""What a peer tells about itself: records on disk, metrics, its row in the table of the swarm."""
