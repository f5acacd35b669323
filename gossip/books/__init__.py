"""Where mass is, exactly once: held, received and not merged, sent and not acknowledged."""
