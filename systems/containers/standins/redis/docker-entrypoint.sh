#!/bin/sh
# As the published image's: redis-server runs as its own user.
set -e
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
  find . ! -user redis -exec chown redis '{}' +
  shift
  exec setpriv --reuid redis --regid redis --clear-groups redis-server "$@"
fi
exec "$@"
