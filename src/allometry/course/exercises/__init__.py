"""Exercises, one module per lesson; each has a tuple `EXERCISES`."""
