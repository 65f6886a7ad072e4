// Command dashboards writes the Grafana dashboards of signalbox from the table of metrics, into the
// folder that its argument names:
//
//	go run ./server/deploy/monitoring/dashboards server/deploy/monitoring
//
// An expression is built from rows of the table, so that it cannot name a metric or a label that
// does not exist.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "give the folder of the dashboards")
		os.Exit(2)
	}
	for name, text := range dashboards() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
