// Package deploy holds a script, a systemd unit, a container and a StatefulSet that run signalbox,
// and tests of each.
package deploy
