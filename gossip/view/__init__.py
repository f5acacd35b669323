"""What a peer believes of the others, and the schedule that follows from it."""
