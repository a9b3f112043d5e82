"""Shared foundation: errors, `Estimate`, `Spec`, safe file access, citations."""
