#!/bin/sh
# Runs after the package is installed or upgraded: Debian's says configure and the former version,
# RPM's how many versions there are. It starts nothing and restarts nothing: an upgrade that all
# machines take in one night would take the majority away.
set -e
token=/etc/signalbox/join-token
made=
if [ ! -e "$token" ]; then
  (umask 077 && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$token.new")
  mv "$token.new" "$token"
  made=yes
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
fi
if [ "$1" = configure ] && [ -n "$2" ] || [ "$1" = 2 ]; then
  echo "signalbox: nothing was restarted. Restart one instance after another, and wait before the next:"
  echo "  systemctl restart signalbox && signalbox cluster plan --until-done --timeout 10m"
elif [ -n "$made" ]; then
  echo "signalbox: nothing was started. systemctl enable --now signalbox starts a single instance."
  echo "Others of a cluster need a copy of $token before their first start."
fi
