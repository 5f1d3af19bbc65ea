"""When: observe, plan, judge, apply. Speaks to ports only; all it knows is in the store, so it may die any moment."""
