package chaos

import (
	"flag"
	"os"
	"testing"
)

// Values of a run. How large it is says SIGNALBOX_TEST.
var (
	seedFlag    = flag.Uint64("seed", 0, "of TestCheckedHistories: says which faults come; 0: others in each run")
	minutesFlag = flag.Float64("minutes", 0, "of TestCheckedHistories; 0: as long as the form has it")
	faultsFlag  = flag.String("faults", "", "a pattern that selects the faults of TestCheckedHistories by name")
	kindsFlag   = flag.String("kinds", "", "kinds of hostile clients that come alone in TestFlood, separated by commas")
	roundsFlag  = flag.Int("rounds", 0, "of random steps in TestRollingUpgrade; 0: as many as the form has")
	lengthFlag  = flag.Duration("length", 0, "of TestSoak; 0: as long as the form has it")
	reportFlag  = flag.String("report", "", "the file for the report of TestCheckedHistories or TestFlood")
	keepFlag    = flag.String("keep", "", "the folder for what a failed test keeps; default one among the system's temporary files")
)

// writeReport leaves a test's report where -report says.
func writeReport(t *testing.T, report string) {
	t.Helper()
	if *reportFlag == "" {
		return
	}
	if err := os.WriteFile(*reportFlag, []byte(report), 0o644); err != nil {
		t.Error(err)
	}
}
