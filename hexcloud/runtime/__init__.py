"""Work on rented machines: coordinator, rollout agent, trainer, probe."""
