"""What is not repeated of a foreign message: a user and a password in a URL are nobody's business but the server's."""

import re

_USERINFO = re.compile(r"(?<=//)\S*@|[^\s/:@]+:[^\s/@]+@")
"""Before the host of a URL, whatever a password holds; or `user:password@` where the scheme has been cut off."""


def discreet(text: str) -> str:
    """Return a message in one line, without the user and password of any URL in it."""
    return _USERINFO.sub("", " ".join(text.split()))
