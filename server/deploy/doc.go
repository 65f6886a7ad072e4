// Package deploy holds a script, a systemd unit, a container and a StatefulSet that run signalbox,
// and tests of each.
//
// Instances must find each other before they are ready: the headless service publishes addresses
// that are not ready, and the StatefulSet starts all at once. With parallel pods an update does not
// look at pods that are not ready, so pods have --stop-wait. The liveness probe does not depend on
// other instances. In cluster.sh instances ignore Ctrl-C, like a shell's background jobs: the
// script sends each one a signal once, and waits.
//
// The dashboards sum counters over instances, as the leader alone counts, and take the maximum of
// what each replica shows. No rule knows the name of the scrape job, so none asks for up.
package deploy
