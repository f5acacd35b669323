"""The protocol of one peer, without a socket, a clock or a thread: events and the time go in, effects come out."""
