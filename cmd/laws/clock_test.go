package laws

import (
	"go/ast"
	"strings"
	"testing"
)

// wallClock is where the time of day may be read or made, and what it is for there. Everything else
// goes by clocks that only go forward, so that nothing is decided by somebody who sets a clock.
var wallClock = map[string]string{
	"client/admin/audit.go":               "when events were, shown",
	"client/admin/auth.go":                "when a token expires, as people say it",
	"server/trust/trusttest/issuer.go":    "until when a token is valid, as its issuer says it",
	"client/config_value.go":              "shown",
	"client/internal/driver/driver.go":    "a jump makes leases suspect, never better",
	"client/internal/driver/connect.go":   "a deadline in the past, to wake a read",
	"client/internal/millis/millis.go":    "shown",
	"client/recipes/once.go":              "periods are of the day; numbers of periods rise, and a lease keeps runs apart",
	"server/governor/cluster_health.go":   "since when an instance is not heard, shown",
	"server/governor/meta_log.go":         "the stamp on commands, shown",
	"server/backup/snapshot_times.go":     "how long ago a backup was, shown",
	"server/membership/observation.go":    "since when an instance is not heard, shown",
	"server/metrics/process.go":           "the start of the process, shown",
	"server/shardhost/top.go":             "how long waits last, shown",
	"server/request/rollout.go":           "the stamp on what a poll reports, shown",
	"server/delivery/process_stream.go":   "shown",
	"server/console/text.go":              "shown",
	"server/auth/view.go":                 "when a token expires, as people say it; certificates do so too",
	"server/request/token_use.go":         "when a token was used, shown",
	"server/shardhost/track_decisions.go": "shown",
	"server/servertest/clock.go":          "tests",
	"server/listen.go":                    "the end of a certificate, shown",
	"shard/replica/proposer.go":           "the stamp on batches, shown",
	"protocol/boottime/boottime.go":       "has the system's clock asked sooner",
}

// TestNothingIsDecidedByTheTimeOfDay: a time that was read with time.Now holds a monotonic reading,
// which differences and comparisons use. It is lost where the time is taken apart or made from a
// number.
func TestNothingIsDecidedByTheTimeOfDay(t *testing.T) {
	list, fset := packages(t)
	used := map[string]bool{}
	for _, p := range list {
		if !strings.HasPrefix(p.dir, "server") && !strings.HasPrefix(p.dir, "shard") &&
			!strings.HasPrefix(p.dir, "client") && !strings.HasPrefix(p.dir, "protocol") {
			continue
		}
		for name, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !readsDay(sel, call) {
					return true
				}
				if _, used[name] = wallClock[name]; used[name] {
					return true
				}
				t.Errorf(
					"%s takes the time of day (%s): decide by a clock that only goes forward; if it is only shown, say so in wallClock",
					fset.Position(n.Pos()), sel.Sel.Name)
				return true
			})
		}
	}
	for place := range wallClock {
		if !used[place] {
			t.Errorf("%s does not take the time of day any more; take it from wallClock", place)
		}
	}
}

// readsDay reports whether a call loses a time's monotonic reading, or makes a time without one.
func readsDay(sel *ast.SelectorExpr, call *ast.CallExpr) bool {
	of, _ := sel.X.(*ast.Ident)
	switch sel.Sel.Name {
	case "Unix", "UnixMilli", "UnixMicro", "UnixNano", "Wall":
		return true
	case "wall": // of the client's clock
		x, ok := sel.X.(*ast.SelectorExpr)
		return ok && x.Sel.Name == "clock"
	case "Date", "Parse", "ParseInLocation":
		return of != nil && of.Name == "time"
	case "Round":
		return len(call.Args) == 1 && isZero(call.Args[0])
	}
	return false
}

func isZero(e ast.Expr) bool {
	x, ok := e.(*ast.BasicLit)
	return ok && x.Value == "0"
}
