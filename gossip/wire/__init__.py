"""Messages between peers, and how they become bytes: `kinds` has a row for each kind, `frames` the codec."""
