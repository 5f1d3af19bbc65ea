"""Who may generate and train what: the staleness law, pure. No clock, no network: `now_s` is an argument."""
