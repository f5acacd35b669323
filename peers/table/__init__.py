"""The table of a swarm: its columns, the rows that peers pass on, and totals turned into rates. Needs no torch."""
