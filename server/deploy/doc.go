// Package deploy holds what starts signalbox on machines: a script, a systemd unit, a container and
// a StatefulSet, and tests that run or read each of them.
package deploy
