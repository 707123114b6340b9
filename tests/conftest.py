"""What every test shares."""

from hypothesis import HealthCheck, settings

# Two busy cores: no test asserts a time, and slow data generation is not a fault.
settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# `make check` and other Pythons: `make test` draws the full number.
settings.register_profile("quick", settings.get_profile("penstock"), max_examples=20)
settings.load_profile("penstock")

pytest_plugins = ["tests.servers.fixtures"]
