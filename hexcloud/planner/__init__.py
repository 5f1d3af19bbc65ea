"""Pure decisions: from a market and a job to a placement, and from a fleet to a verdict on changing it."""
