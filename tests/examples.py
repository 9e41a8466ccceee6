"""The number of examples of properties that are expensive to test."""

from collections.abc import Callable
from typing import Any

from hypothesis import settings


def at_most(number: int) -> Callable[[Any], Any]:
    """Test a property with this number of examples, or with that of the profile if it is smaller."""
    return settings(max_examples=min(number, settings().max_examples))
