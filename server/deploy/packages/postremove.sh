#!/bin/sh
# Runs after the package was removed, purged or upgraded. Data and join token stay: without the token
# an instance cannot go on with its data.
set -e
if [ "$1" = remove ] || [ "$1" = purge ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
  fi
  echo "signalbox: the data stays in /var/lib/signalbox (a link to /var/lib/private/signalbox), and the"
  echo "join token in /etc/signalbox/join-token; remove both when nobody needs them any more"
fi
