"""Settings: one frozen tree, read once from TOML, the environment (PENSTOCK_*) and .env.

Precedence, strongest first: arguments, environment, .env, TOML file, defaults. Nested names are
joined by two underscores: PENSTOCK_API__HTTP=127.0.0.1:9000. Where each value came from is known
(`penstock.settings_origin`), so that an error can say it.
"""

from penstock.settings.load import Examined, examine, given, load, load_with_origins
from penstock.settings.tree import (
    OFF,
    ApiSettings,
    LimitSettings,
    LogSettings,
    RoomKeySettings,
    RoomsSettings,
    RouteSettings,
    Settings,
    SourceSettings,
    TokenSettings,
    WorkerSettings,
    millis,
    section,
)

__all__ = [
    "OFF",
    "ApiSettings",
    "Examined",
    "LimitSettings",
    "LogSettings",
    "RoomKeySettings",
    "RoomsSettings",
    "RouteSettings",
    "Settings",
    "SourceSettings",
    "TokenSettings",
    "WorkerSettings",
    "examine",
    "given",
    "load",
    "load_with_origins",
    "millis",
    "section",
]
