"""Sections of a report: one module for each kind of study."""
