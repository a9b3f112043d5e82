"""Models whose weights come from a proof."""
