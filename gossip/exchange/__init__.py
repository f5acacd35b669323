"""The ways in which peers exchange values: pushes, pulls, sparse pairs, differences; and what a link can carry."""
