"""Clock, timers, alarm and chance: everything that waits or draws is given one of these."""
