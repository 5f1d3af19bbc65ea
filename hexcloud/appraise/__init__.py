"""Belief: which market rows to trust, and which of two that disagree. Pure."""
