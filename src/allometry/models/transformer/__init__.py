"""The transformer: model, attention, positions, caches and the fast paths beside them."""
