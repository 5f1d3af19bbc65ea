"""Clients of the clouds' own APIs: thin calls, shared by prices, preflight and the sweep for lost machines."""
