"""Market sources: the bundled snapshot, and a price trace played over any source."""
