"""Pictures of schedules, of mixing and of simulated runs."""
