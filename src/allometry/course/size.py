"""The size of a lesson: full for readers, small for tests."""

import os

SMALL = "ALLOMETRY_COURSE"
"""The environment variable that selects the small version of lessons."""


def amount(full: int, *, small: int) -> int:
    """`full`, or `small` where the environment variable `ALLOMETRY_COURSE` is `small`.

    Tests run lessons in their small version.

    Example:
        >>> import allometry as al
        >>> al.course.amount(500, small=20) in (500, 20)
        True
    """
    return small if os.environ.get(SMALL) == "small" else full
