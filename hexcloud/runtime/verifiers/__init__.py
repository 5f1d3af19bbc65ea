"""Verifiers that run in a sandbox. Each file stands alone: its text is all that goes into the room."""
