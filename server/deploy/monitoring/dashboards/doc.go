// Package dashboards has the tests that write the Grafana dashboards of signalbox from the table of
// metrics, with make golden, and that compare the files with it. An expression is built from rows of
// the table, so that it cannot name a metric or a label that does not exist.
package dashboards
