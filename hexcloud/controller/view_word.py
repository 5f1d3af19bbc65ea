"""Tell when the coordinator answers with what cannot be read as the run's view, and when it can be again.

The run goes on meanwhile: its spend lease is renewed, and no machine is ended for what nobody can read.
"""

from hexcloud.controller.hands import Hands

UNREADABLE, READ_AGAIN = "view_unreadable", "view_read_again"
MAX_REASON = 500
"""Characters of the reason that the history keeps."""


def tell_of_view(hands: Hands) -> None:
    """Write one event for each change since the turn before."""
    seen, memory = hands.seen, hands.memory
    if seen.unreadable and not memory.is_view_unreadable:
        memory.is_view_unreadable = True
        text = "the coordinator lives and its view cannot be read; the run goes on, and nothing new is known of it: "
        hands.journal.say(UNREADABLE, text + seen.unreadable[:MAX_REASON])
    elif seen.view is not None and memory.is_view_unreadable:
        memory.is_view_unreadable = False
        hands.journal.say(READ_AGAIN, "the coordinator's view can be read again")
