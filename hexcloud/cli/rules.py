"""What the rules of the gate mean, for people: a sentence each, and what frees a row from it."""

NOTHING = "Nothing: such a row cannot be true."
WITNESS = "A believed source of another lineage that says the same, a bill, or `hexcloud catalog trust`."
COUNT = "A source of another lineage that says the same, a bill, or `hexcloud catalog trust`."
LAUNCH = "A launch there that succeeds; until then its stock is 0, or 1 with the policy's `try_unproven`."

RULES: dict[str, tuple[str, str]] = {
    "no_price": ("The row lists a machine and no price in any market.", NOTHING),
    "price_not_positive": ("The price is zero, negative or infinite; a cost minimiser would take it at once.", NOTHING),
    "unknown_currency": (
        "The price is in a currency without a rate.",
        "A rate: `hexcloud catalog rate EUR 1.16`.",
    ),
    "spot_over_on_demand": ("Spot is dearer than the same machine on demand.", NOTHING),
    "bad_tenure": ("The tenure is neither on_demand nor spot.", NOTHING),
    "bad_date": ("The day on which the price was true is no date.", NOTHING),
    "bad_name": ("Cloud, region or type is empty, or would break the offer's id.", NOTHING),
    "bad_count": ("The GPU count is no whole number of at least one: no machine, or a slice of a GPU.", NOTHING),
    "bad_size": ("vCPUs, memory, network or quota is no size.", NOTHING),
    "missing_part": ("A part of the machine that bills too has no price, so the sum is too low.", WITNESS),
    "impossible_count": ("Rented machines have 1, 2, 4, 8 or 16 GPUs; this count is likely a typing error.", COUNT),
    "far_too_cheap": ("The price is far under what such a GPU costs anywhere else.", WITNESS),
    "per_gpu_price": (
        "A large machine for about what one of its GPUs costs: a price per GPU in the wrong column.",
        WITNESS,
    ),
    "step": (
        "The list price moved by more than 30 % since it was last believed.",
        "A second snapshot with other content that stays on that side, or `hexcloud catalog trust`.",
    ),
    "floor_price": ("Spot stands at the discount that clouds list where there is nothing to sell.", LAUNCH),
    "spot_equals_on_demand": ("Spot costs as much as on demand: there is hardly any spare machine.", LAUNCH),
    "not_listed": ("The cloud's own list of zones does not have this machine type here.", LAUNCH),
    "low_placement_score": ("AWS says that a spot launch there is unlikely to succeed.", LAUNCH),
}
"""Rule -> meaning and cure."""
