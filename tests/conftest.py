"""What every test shares."""

import signal

from hypothesis import HealthCheck, settings

# Two busy cores: no test asserts a time, and slow data generation is not a fault.
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# `make check` and other Pythons: `make test` draws the full number.
settings.register_profile("quick", settings.get_profile("penstock"), max_examples=20)
settings.load_profile("penstock")

pytest_plugins = ["tests.servers.fixtures"]

# A shell starts its background jobs with SIGINT ignored, and the processes of a test inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
