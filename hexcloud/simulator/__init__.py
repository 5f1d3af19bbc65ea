"""A whole cloud in memory, on a virtual clock: prices, capacity, losses, faults, a run that trains, a store."""
