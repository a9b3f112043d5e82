"""Training code of the user's own as a study: commands and Python functions."""
