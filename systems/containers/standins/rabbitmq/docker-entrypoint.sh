#!/bin/sh
# As the published image's: RABBITMQ_DEFAULT_USER and _PASS make the first user. Idle schedulers
# must not spin: several of these may run on one machine.
set -e
if [ "$1" = rabbitmq-server ]; then
  printf 'default_user = %s\ndefault_pass = %s\nloopback_users = none\ndisk_free_limit.absolute = 50MB\n' \
    "${RABBITMQ_DEFAULT_USER:?}" "${RABBITMQ_DEFAULT_PASS:?}" > /etc/rabbitmq/rabbitmq.conf
  unset RABBITMQ_DEFAULT_USER RABBITMQ_DEFAULT_PASS
  chown -R rabbitmq:rabbitmq /var/lib/rabbitmq /etc/rabbitmq
  export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none'
  exec setpriv --reuid rabbitmq --regid rabbitmq --clear-groups /usr/lib/rabbitmq/bin/rabbitmq-server
fi
exec "$@"
