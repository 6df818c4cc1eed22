"""What the pools of Python are to do."""


def nothing():
    """Does nothing."""
