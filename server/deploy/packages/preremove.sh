#!/bin/sh
# Runs before the package is removed or upgraded: Debian's says remove, RPM's that no version is
# left. Only a removal stops the instance.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl disable --now signalbox.service || :
  fi
fi
