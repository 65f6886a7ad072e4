// Which report is the baseline, and which of its figures does COMPARISON.md show?

package bench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where the baseline is, seen from the root of the repository, where the programs run.
const (
	peersPage  = "bench/COMPARISON.md"
	baseline   = "bench/results/baseline.json"
	peersBegin = "<!-- measured: written by `bench adopt` -->\n"
	peersEnd   = "<!-- end of measured -->\n"
)

// adoptCommand makes a report the baseline, with which later runs are compared, and which
// COMPARISON.md shows. A failed measurement has no figure, and the pages name the reason.
func adoptCommand(args []string) error {
	r, err := readReport(args, "adopt")
	if err != nil {
		return err
	}
	// The page is made before anything is written.
	page, err := os.ReadFile(peersPage)
	if err != nil {
		return err
	}
	if page, err = r.inPeersPage(page); err != nil {
		return err
	}
	if err := save(map[string]func(io.Writer) error{filepath.FromSlash(baseline): r.WriteJSON}); err != nil {
		return err
	}
	return os.WriteFile(peersPage, page, 0o644)
}

// readReport reads the one report that a verb takes.
func readReport(args []string, verb string) (*Report, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("give one report: %s REPORT.json", verb)
	}
	return Read(args[0])
}

// inPeersPage puts the report's short table between the marks of a page.
func (r *Report) inPeersPage(page []byte) ([]byte, error) {
	return replaceBetween(page, peersBegin, peersEnd, r.excerpt())
}

func replaceBetween(page []byte, opening, closing, text string) ([]byte, error) {
	head, rest, ok1 := bytes.Cut(page, []byte(opening))
	_, tail, ok2 := bytes.Cut(rest, []byte(closing))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("the page has no place for the table: it wants the lines %q and %q", opening, closing)
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(opening)
	b.WriteString(text)
	b.WriteString(closing)
	b.Write(tail)
	return b.Bytes(), nil
}

// peersMetrics are the rows of COMPARISON.md's table.
var peersMetrics = []string{
	"pairs-1024", "rate-1000-p99", "rate-4000-p99", "rate-20000-p99", "rate-40000-p99", "rate-4000-cpu",
	"rate-40000-cpu", "pairs-256", "pair-1", "handoffs-64",
	"strict-256", "relaxed-256", "watch-5000-p99", "each-5000-p99", "each-20000-p99", "starts", "starts-cpu",
	"three-1024", "three-pair-1", "three-handoffs-64", "three-strict-256", "idle-own-memory", "idle-own-cpu",
}

// peers are the systems that a user chooses between: the columns of COMPARISON.md's table.
var peers = []string{Signalbox, Etcd, ZooKeeper, GoRedis, Rueidis}

func (r *Report) excerpt() string {
	table := r.table(peers, func(m Metric) bool {
		return slices.Contains(peersMetrics, m.ID) && slices.ContainsFunc(peers, func(s string) bool {
			return r.Measurements.find(m.ID, s) != nil && !r.fellBehind(m, s)
		})
	}, false)
	empty := "" // why cells have no figure
	if strings.Contains(table, fallsBehind) {
		empty = "A system falls behind when it does\nnot reach the rate. "
	}
	failed := r.failures()
	if failed != "" {
		failed = "Some measurements failed and have no figures; that file says why:\n\n" + failed + "\n"
	}
	return fmt.Sprintf("\n%s\nMedians of %d rounds of %s seconds on %d cores (%s), shared by servers and load.\n"+
		"Every system writes durably before it answers, and an append is made durable there in %s ms.\n"+
		"A pair locks and unlocks a name that nobody else wants. %sAll figures by round, and the\n"+
		"versions: [%s](%s).\n\n%s",
		table, r.Rounds, plain(r.Seconds), r.Machine.Cores, r.Machine.CPU, digits(r.Machine.Fsync), empty,
		filepath.Base(baseline), strings.TrimPrefix(baseline, "bench/"), failed)
}
