package rollout

import (
	"errors"
	goflag "flag"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { goflag.Var(goflag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: each file shows an edge case. Regenerate with
// -update and read the diff.
//
// The only directive is do; each input line is a command, echoed with its answer and what left the
// track:
//
//	at 5000 | at +5000
//	    log time (wall time is the same); nothing is called
//	config source=published LOC:delay[:k=v,...] ... [k=v ...]
//	    a new track, or a change of the config
//	join ID LOC role [session=n] [takeover]
//	poll ID [ok|bad|err] [cur=v] [tgt=v] [code=c] [att=n] [seq=n] [inc=n] [session=n]
//	    "ok" says that the last answer's version is loaded, "bad" that it is out of range, "err"
//	    that the source fails. "read" in the answer: no entry in the log.
//	report ID ...
//	    the same without asking
//	role, leave, end (its session), evict ID; tick; next; restore; status; history LOC
//	publish, withdraw, advance, fail EXPECTED TEXT, pause, resume, promote, rollback, reelect,
//	exclude, include, gate
//
// Versions of the timestamp oracle are written ms.logical.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		x := newScriptRunner(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			x.t = t
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					x.command(line)
				}
			}
			s := x.b.String()
			x.b.Reset()
			return s
		})
	})
}

type scriptInstance struct {
	caller Caller
	seq    uint64
	last   uint64
	tries  uint64
}

type scriptRunner struct {
	t      testing.TB
	track  *Track
	now    Now
	actors map[string]*scriptInstance
	out    Events
	b      strings.Builder
}

func newScriptRunner(t testing.TB) *scriptRunner {
	return &scriptRunner{t: t, now: Now{Log: 1000, Wall: 1000}, actors: map[string]*scriptInstance{}}
}

func version(v uint64) string {
	switch {
	case v == 0:
		return "none"
	case v >= 1<<tsoLogicalBits:
		return fmt.Sprintf("%d.%d", v>>tsoLogicalBits, v&(1<<tsoLogicalBits-1))
	}
	return strconv.FormatUint(v, 10)
}

func parseVersion(s string) uint64 {
	if ms, logical, ok := strings.Cut(s, "."); ok {
		a, _ := strconv.ParseUint(ms, 10, 64)
		b, _ := strconv.ParseUint(logical, 10, 64)
		return a<<tsoLogicalBits + b
	}
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}

func refused(err error) string {
	var e *protocol.Error
	if errors.As(err, &e) {
		text, _, _ := strings.Cut(e.Message, ";")
		return e.Status.String() + " " + text
	}
	return err.Error()
}

func (x *scriptRunner) command(line string) {
	f := strings.Fields(line)
	verb, args, vals := f[0], []string{}, map[string]string{}
	for _, w := range f[1:] {
		if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, ":") {
			vals[k] = v
		} else {
			args = append(args, w)
		}
	}
	for len(args) < 4 {
		args = append(args, "")
	}
	x.out.Reset()
	answer := "ok"
	var before uint64
	if x.track != nil {
		before = x.track.Digest()
	}
	err := x.run(verb, args, vals, &answer)
	if err != nil {
		answer = refused(err)
	}
	fmt.Fprintf(&x.b, "%s -> %s\n", line, answer)
	for _, c := range x.out.List {
		x.b.WriteString("  " + describe(c) + "\n")
	}
	if x.track == nil {
		return
	}
	if after := x.track.Digest(); err != nil && after != before && verb != "advance" {
		x.t.Fatalf("%s: refused, but something changed", line)
	}
	if err := x.track.Check(); err != nil {
		x.t.Fatalf("%s: %v", line, err)
	}
	checkCounts(x.t, x.track)
}

func describe(c protocol.TrackEvent) string {
	s := c.Kind.String()
	if c.Location != "" {
		s += " " + c.Location
	}
	if c.Instance != "" {
		s += " " + c.Instance
	}
	if c.Gate != "" {
		s += " " + c.Gate
	}
	switch c.Kind {
	case protocol.TrackEventTarget:
		s += fmt.Sprintf(" %s from %s", version(c.Version), version(c.From))
		if c.Share {
			s += " share"
		}
		s += " (" + c.Reason.String() + ")"
	case protocol.TrackEventState:
		s += " " + c.State.String()
		if c.Until != 0 {
			s += fmt.Sprintf(" until %d", c.Until)
		}
	default:
		if c.Version != 0 {
			s += " " + version(c.Version)
		}
	}
	return s + ": " + c.Text
}

func (x *scriptRunner) caller(id string, vals map[string]string) (*scriptInstance, Caller) {
	a := x.actors[id]
	if a == nil {
		return &scriptInstance{}, Caller{Session: 999, ID: id, Incarnation: 1}
	}
	c := a.caller
	if v, ok := vals["inc"]; ok {
		c.Incarnation = parseVersion(v)
	}
	if v, ok := vals["session"]; ok {
		c.Session = parseVersion(v)
	}
	return a, c
}

func (x *scriptRunner) report(a *scriptInstance, args []string, vals map[string]string) *protocol.UpdateReport {
	r := protocol.UpdateReport{Attempts: parseVersion(vals["att"]), Current: parseVersion(vals["cur"]),
		Target: parseVersion(vals["tgt"]), Code: vals["code"]}
	some := len(vals) > 0
	for _, w := range args[1:] {
		switch w {
		case "ok":
			r.Current, r.Target, r.Code, some = a.last, a.last, CodeOK, true
		case "bad":
			r.Target, r.Code, some = a.last, DefaultExplicitCode, true
		case "err":
			r.Target, r.Code, some = a.last, CodeSourceError, true
			if r.Attempts == 0 {
				a.tries++
				r.Attempts = a.tries
			}
		}
	}
	if !some {
		return nil
	}
	if v, ok := vals["seq"]; ok {
		r.Seq = parseVersion(v)
	} else {
		a.seq++
		r.Seq = a.seq
	}
	return &r
}

func (x *scriptRunner) run(verb string, args []string, vals map[string]string, answer *string) error {
	t := x.track
	switch verb {
	case "at":
		n := parseVersion(strings.TrimPrefix(args[0], "+"))
		if strings.HasPrefix(args[0], "+") {
			n += x.now.Log
		}
		x.now = Now{Log: n, Wall: n}
		*answer = fmt.Sprint(n)
	case "config":
		c, err := scriptConfig(args, vals)
		if err != nil {
			return err
		}
		if t == nil {
			x.track, err = New(x.now, c, &x.out)
			return err
		}
		revision := t.Revision()
		if v, ok := vals["rev"]; ok {
			revision = parseVersion(v)
		}
		return t.Configure(x.now, revision, c, &x.out)
	case "join":
		a := &scriptInstance{}
		session := parseVersion(vals["session"])
		if session == 0 {
			session = 100 + uint64(len(x.actors))
			if old := x.actors[args[0]]; old != nil {
				session = old.caller.Session
			}
		}
		role := protocol.InstanceFollower
		if args[2] == "leader" {
			role = protocol.InstanceLeader
		}
		n, err := t.Register(x.now, Registration{Session: session, ID: args[0], Location: args[1],
			Role: role, Takeover: args[3] == "takeover"}, &x.out)
		if err != nil {
			return err
		}
		a.caller = Caller{Session: session, ID: args[0], Incarnation: n}
		x.actors[args[0]] = a
		*answer = fmt.Sprintf("incarnation %d", n)
	case "poll":
		a, c := x.caller(args[0], vals)
		r := x.report(a, args, vals)
		before := t.Digest()
		peeked, ok, peekErr := t.Peek(x.now, c, r)
		got, err := t.Poll(x.now, c, r, &x.out)
		same := t.Digest() == before
		if ok != same || ok && (!reflect.DeepEqual(peeked, got) || !reflect.DeepEqual(peekErr, err) || len(x.out.List) > 0) {
			x.t.Fatalf("peek: ok %v, %v, %v; poll: changed %v, %v, %v", ok, peeked, peekErr, !same, got, err)
		}
		if err != nil {
			return err
		}
		if got.Version != a.last {
			a.last, a.tries = got.Version, 0
		}
		*answer = fmt.Sprintf("%s %s %s", version(got.Version), got.Status, got.State)
		if got.RetryAfter > 0 {
			*answer += fmt.Sprintf(" again in %d", got.RetryAfter)
		}
		if ok {
			*answer += " read"
		}
	case "report":
		a, c := x.caller(args[0], vals)
		return t.Report(x.now, c, *x.report(a, args, vals), &x.out)
	case "role":
		_, c := x.caller(args[0], vals)
		role := protocol.InstanceFollower
		if args[1] == "leader" {
			role = protocol.InstanceLeader
		}
		return t.SetRole(x.now, c, role, &x.out)
	case "leave":
		_, c := x.caller(args[0], vals)
		return t.Unregister(x.now, c, &x.out)
	case "end":
		_, c := x.caller(args[0], vals)
		t.SessionEnded(x.now, c.Session, &x.out)
	case "evict":
		return t.Evict(x.now, args[0], &x.out)
	case "tick":
		t.Tick(x.now, &x.out)
	case "next":
		at, ok := t.Next()
		if *answer = "never"; ok {
			*answer = fmt.Sprint(at)
		}
	case "restore":
		u, err := Decode(t.Append(nil))
		if err != nil {
			return err
		}
		if u.Digest() != t.Digest() {
			x.t.Fatal("digests differ")
		}
		x.track = u
	case "status":
		*answer = ""
		s := t.Describe(x.now)
		for _, l := range s.Locations {
			*answer += fmt.Sprintf("\n  %s target %s, %s, %d/%d of %d", l.Name,
				version(l.Target), l.State, l.Reached, l.Counted, l.Members)
			if len(l.BlockedBy) > 0 {
				*answer += ", waits for " + strings.Join(l.BlockedBy, " ")
			}
			if l.Until != 0 {
				*answer += fmt.Sprintf(", until %d", l.Until)
			}
		}
	case "history":
		rows, err := t.History(args[0])
		if err != nil {
			return err
		}
		*answer = fmt.Sprintf("%d rows", len(rows))
		for _, r := range rows[max(0, len(rows)-12):] {
			*answer += fmt.Sprintf("\n  %s at %d (%s)", version(r.Version), r.At, r.Reason)
			if r.Converged != 0 {
				*answer += fmt.Sprintf(" converged %d", r.Converged)
			}
			if r.Skip {
				*answer += " skip"
			}
		}
	case "publish":
		v, err := t.Publish(x.now, parseVersion(args[0]), []byte(args[1]), &x.out)
		if err != nil {
			return err
		}
		*answer = version(v)
	case "withdraw":
		return t.Withdraw(x.now, parseVersion(args[0]), &x.out)
	case "advance":
		return t.Advance(x.now, parseVersion(args[0]), parseVersion(args[1]), &x.out)
	case "fail":
		return t.SourceFailed(x.now, parseVersion(args[0]), args[1], &x.out)
	case "pause":
		_, hard := vals["hard"]
		return t.Pause(x.now, given(args), hard, &x.out)
	case "resume":
		return t.Resume(x.now, given(args), &x.out)
	case "promote":
		return t.Promote(x.now, given(args), &x.out)
	case "rollback":
		return t.Rollback(x.now, given(args[1:]), parseVersion(args[0]), &x.out)
	case "reelect":
		return t.Reelect(x.now, given(args), &x.out)
	case "exclude":
		return t.Exclude(x.now, given(args), &x.out)
	case "include":
		return t.Include(x.now, given(args), &x.out)
	case "gate":
		o := map[string]protocol.GateOutcome{"success": protocol.GateSuccess, "failure": protocol.GateFailure,
			"inconclusive": protocol.GateInconclusive}[vals["outcome"]]
		return t.ReportGate(x.now, args[0], parseVersion(args[1]), args[2],
			parseVersion(args[3]), o, vals["text"], &x.out)
	default:
		x.t.Fatalf("unknown command %q", verb)
	}
	return nil
}

// given are the arguments without those that are missing.
func given(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "" })
}

func scriptConfig(args []string, vals map[string]string) (protocol.TrackConfig, error) {
	c := protocol.TrackConfig{Source: map[string]protocol.TrackSource{"": protocol.SourceTSO,
		"tso": protocol.SourceTSO, "external": protocol.SourceExternal,
		"published": protocol.SourcePublished}[vals["source"]]}
	if vals["from"] == "converged" {
		c.DelayFrom = protocol.FromConverged
	}
	c.AutoDemote, c.KeepRemoved = vals["demote"] != "", vals["keep"] != ""
	c.SkipEmptyAfter, c.MinAdvanceInterval = parseVersion(vals["skip_empty"]), parseVersion(vals["min_advance"])
	c.StallTimeout, c.Retention = parseVersion(vals["stall"]), parseVersion(vals["retention"])
	if v := vals["codes"]; v != "" {
		c.ExplicitCodes = strings.Split(v, "+")
	}
	for _, a := range args {
		if a == "" {
			continue
		}
		p := strings.SplitN(a, ":", 3)
		l := protocol.LocationConfig{Name: p[0], Delay: parseVersion(p[1])}
		if len(p) == 3 {
			for _, kv := range strings.Split(p[2], ",") {
				k, v, _ := strings.Cut(kv, "=")
				switch k {
				case "bake":
					l.Bake = parseVersion(v)
				case "share":
					l.Share = uint8(parseVersion(v))
				case "sharebake":
					l.ShareBake = parseVersion(v)
				case "gate":
					l.Gates = append(l.Gates, protocol.GateConfig{Name: v, Kind: protocol.GateCommand, Spec: "true"})
				}
			}
		}
		c.Locations = append(c.Locations, l)
	}
	return c, nil
}

// checkCounts compares the counts kept by account with those found by counting all.
func checkCounts(t testing.TB, x *Track) {
	t.Helper()
	for _, l := range x.locations {
		kept := [4]int{l.leaders, l.counted, l.unreached, l.explicit}
		s := l.suspects
		l.recount(&x.plan)
		if kept != [4]int{l.leaders, l.counted, l.unreached, l.explicit} ||
			s[0].n != l.suspects[0].n || s[1].n != l.suspects[1].n ||
			s[0].n > 0 && s[0].at != l.suspects[0].at || s[1].n > 0 && s[1].at != l.suspects[1].at {
			t.Fatalf("%s: counts %v %v, counted %v %v", l.name, kept, s,
				[4]int{l.leaders, l.counted, l.unreached, l.explicit}, l.suspects)
		}
	}
}
