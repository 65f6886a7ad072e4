package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestAlertNumbers: no summary puts a number before its noun, where 1 would need another form.
func TestAlertNumbers(t *testing.T) {
	rules := read(t, "monitoring/alerts.yml")
	if wrong := regexp.MustCompile(`summary: .*\$value( \| printf[^}]*)? \}\} ([a-z]+ )?[a-z]+s\b.*`).FindAllString(rules, -1); wrong != nil {
		t.Errorf("write the number behind a colon: %s", strings.Join(wrong, "\n"))
	}
}

// TestAlertRules has promtool check the rules and run their tests. In form full all rules are then
// replaced by ones that always fire, and by ones that never do: the tests have to find each.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed, so the alert rules are not tested; it is in Debian's package prometheus")
	}
	rules, tests := read(t, "monitoring/alerts.yml"), read(t, "monitoring/alerts_test.yml")
	dir := t.TempDir()
	run := func(rules, verb string) (string, error) {
		t.Helper()
		file := map[string]string{"check": "alerts.yml", "test": "alerts_test.yml"}[verb]
		for name, text := range map[string]string{"alerts.yml": rules, "alerts_test.yml": tests} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), promtool, verb, "rules", file)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, verb := range []string{"check", "test"} {
		if out, err := run(rules, verb); err != nil {
			t.Errorf("promtool %s rules: %v\n%s", verb, err, out)
		}
	}

	var list struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(rules), &list); err != nil || len(list.Groups) == 0 {
		t.Fatalf("there are no rules: %v", err)
	}
	if !form.Is(form.Full) {
		return
	}
	for what, change := range map[string]func(string) string{
		"always": func(expr string) string { return "vector(1) or " + expr },
		"never":  func(expr string) string { return "(" + expr + ") and vector(1) == 2" },
	} {
		wrong := rules
		for _, r := range list.Groups[0].Rules {
			changed := strings.Replace(wrong, "expr: "+r.Expr+"\n", "expr: "+change(r.Expr)+"\n", 1)
			if changed == wrong {
				t.Fatalf("the expression of %s is not found in the file", r.Alert)
			}
			wrong = changed
		}
		if out, err := run(wrong, "check"); err != nil {
			t.Fatalf("the rules made wrong by hand are no rules: %v\n%s", err, out)
		}
		out, err := run(wrong, "test")
		for _, r := range list.Groups[0].Rules {
			if err == nil || !strings.Contains(out, "alertname: "+r.Alert+",") {
				t.Errorf("%s fires %s, and the tests of the rules do not find it: %v\n%s", r.Alert, what, err, out)
			}
		}
	}
}
