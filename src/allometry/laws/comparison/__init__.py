"""Comparisons of recipes: paired runs, a joint fit, anytime-valid evidence and the verdict."""
