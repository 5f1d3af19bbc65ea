"""Tell when the bucket in which the run's machines meet, or a store for weights, is away, and when it is back.

Training goes on meanwhile.
"""

from hexcloud.controller.hands import Hands

AWAY, BACK = "bucket_away", "bucket_back"
STORE_AWAY, STORE_BACK = "weights_store_away", "weights_store_back"


def tell_of_bucket(hands: Hands) -> None:
    """Write one event for each change, by the view of the turn before; also across a restart of the controller."""
    now, before = hands.seen.view, hands.ports.store.view(hands.seen.run.id)
    if now is None or (before is not None and bool(before.store_trouble) == bool(now.store_trouble)):
        return
    if now.store_trouble:
        kept = f"the newest checkpoint there is of step {now.checkpoint_version}"
        hands.journal.say(AWAY, f"{now.store_trouble}; {kept}", version=now.checkpoint_version)
    elif before is not None:
        hands.journal.say(BACK, "checkpoints are stored again", version=now.checkpoint_version)


def tell_of_weights_stores(hands: Hands) -> None:
    """Write one event for each store that began or ceased to be of no use since the turn before."""
    now, before = hands.seen.view, hands.ports.store.view(hands.seen.run.id)
    if now is None:
        return
    known = before.stores_trouble if before is not None else {}
    for region, reason in sorted(now.stores_trouble.items()):
        if region not in known:
            text = f"weights reach {region} without its store for now: {reason}"
            hands.journal.say(STORE_AWAY, text, region=region)
    for region in sorted(known.keys() - now.stores_trouble.keys()):
        hands.journal.say(STORE_BACK, f"weights go through the store of {region} again", region=region)
