"""Pure arithmetic of caps, pace and quiet hours: no I/O, time is an argument.

Every store decides by this, or by a copy that is tested against it.
"""
