"""The outside world: markets, clouds, provisioners, engines, store, timer, files."""
