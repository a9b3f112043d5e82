"""Planning a study's execution: measured step times, vectorisation, time and compute budgets."""
