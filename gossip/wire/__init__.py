"""What peers say to each other, and how that becomes bytes: messages, and the frames that carry them."""
