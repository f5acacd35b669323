"""Reports of a peer about itself: records on disk, metrics, its row in the table of the swarm."""
