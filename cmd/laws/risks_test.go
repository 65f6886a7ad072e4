package laws

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// tableRows are the cells of the rows of a page's tables, without their heads.
func tableRows(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	head := true
	for line := range strings.Lines(read(t, name)) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "|---"):
			head = false
		case !head:
			rows = append(rows, strings.Split(strings.Trim(line, "|"), " | "))
		}
	}
	return rows
}

// TestMapOfTheAudit: each room of the map is there, has about as many lines as the map says, and a
// test. That the tests exist is another law.
func TestMapOfTheAudit(t *testing.T) {
	rows := tableRows(t, "server/AUDIT.md")
	if len(rows) < 8 {
		t.Fatalf("found %d rooms", len(rows))
	}
	for _, cells := range rows {
		if len(cells) != 5 || !testNamed.MatchString(cells[4]) {
			t.Errorf("the row of %s names no test in its fifth column", cells[0])
			continue
		}
		lines := 0
		for _, m := range inBackticks.FindAllStringSubmatch(cells[0], -1) {
			found, err := filepath.Glob(filepath.Join(root, m[1]))
			if err != nil || len(found) == 0 {
				t.Errorf("there is no file %s: %v", m[1], err)
			}
			for _, path := range found {
				if strings.HasSuffix(path, "_test.go") {
					continue
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				lines += strings.Count(string(text), "\n")
			}
		}
		said, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(cells[1]), ",", ""))
		if err != nil || lines*5 < said*4 || lines*5 > said*6 {
			t.Errorf("%s: the map says %q lines, and %d are there", cells[0], cells[1], lines)
		}
	}
}

// TestFailuresHaveAlertsAndTests: each row of the page of failures names a test, and an alert that
// exists or that there is none.
func TestFailuresHaveAlertsAndTests(t *testing.T) {
	alerts := read(t, "server/deploy/monitoring/alerts.yml")
	rows := tableRows(t, "server/FAILURES.md")
	if len(rows) < 15 {
		t.Fatalf("found %d rows", len(rows))
	}
	for _, cells := range rows {
		if len(cells) != 5 || !testNamed.MatchString(cells[4]) {
			t.Errorf("the row of %s names no test in its fifth column", cells[0])
			continue
		}
		named := 0
		for _, m := range inBackticks.FindAllStringSubmatch(cells[3], -1) {
			if !strings.HasPrefix(m[1], "Signalbox") {
				continue
			}
			named++
			if !strings.Contains(alerts, "- alert: "+m[1]+"\n") {
				t.Errorf("the row of %s names %s, and no rule has that name", cells[0], m[1])
			}
		}
		if none := strings.HasPrefix(strings.TrimSpace(cells[3]), "none"); none == (named > 0) {
			t.Errorf("the row of %s has the alert %q; it names rules or says none", cells[0], cells[3])
		}
	}
}
