"""How old something is, in the one unit a reader wants."""

_UNITS = ((86400.0 * 365, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"))


def age(seconds: float) -> str:
    """Return a span such as `3 days`, `7 h`, `2 min`; never negative.

    >>> age(26 * 3600)
    '26 h'
    """
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
