"""The laws room."""
