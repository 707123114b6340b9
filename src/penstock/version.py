"""The version, as a constant: asking the installed metadata would cost every start its time."""

__version__ = "0.2.0"
