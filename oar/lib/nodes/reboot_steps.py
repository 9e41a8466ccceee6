"""What is done for a broken node."""

from enum import StrEnum
from typing import NamedTuple


class Step(StrEnum):
    """What was done last for a broken node; the word stands in the file of what was tried."""

    SOFT = "soft_reboot"
    HARD = "hard_reboot"
    GIVEN_UP = "given_up"  #: an administrator was told


class Tried(NamedTuple):
    """The last step for a node."""

    step: Step
    date: int
