// Package monitoring makes the Grafana dashboards of signalbox from the table of metrics: its test
// compares them, and writes them with -update. Beside the dashboards the folder has alert rules, a
// runbook, and a script that shows all of it on one machine.
//
// An expression is built from rows of the table, so that it cannot name a metric or a label that
// does not exist.
package monitoring
