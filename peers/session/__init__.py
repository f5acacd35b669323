"""One replica's part in a running swarm: start, agreement, farewell, and what is injected or asked from outside."""
