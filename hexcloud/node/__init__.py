"""The node: what a rented machine runs. Reads who it is, starts its children, ends them with itself."""
