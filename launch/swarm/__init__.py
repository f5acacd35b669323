"""From options to running processes: hosts, ssh, plans, invitations, and the controller that watches them."""
