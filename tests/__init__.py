"""Tests of allometry; types and shapes are checked in every call: see `tests.beartype_checks`."""

from tests.beartype_checks import typechecker

__all__ = ["typechecker"]
