"""Planning a study's execution: measured step times, packing, budgets of time and compute."""
