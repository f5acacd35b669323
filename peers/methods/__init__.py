"""What an algorithm does to the values besides exchanging them: momentum, outer steps, blended directions."""
