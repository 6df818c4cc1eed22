"""Workers in Python for Longshore's pools. Begin at :mod:`longshore.worker`."""

__version__ = "0.2.0"
