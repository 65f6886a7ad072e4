package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// memberGroup is the member processes of one coordination process, dead ones too.
type memberGroup struct {
	t         *testing.T
	endpoints []string
	process   string
	dir       string
	all       []*actor
	mayDie    map[string]bool
}

func newMemberGroup(t *testing.T, name string, endpoints ...string) *memberGroup {
	tr := &memberGroup{t: t, endpoints: endpoints, process: fmt.Sprintf("%s.%d", name, processNames.Add(1)),
		dir: t.TempDir(), mayDie: map[string]bool{}}
	t.Cleanup(func() {
		for _, a := range tr.all {
			if !a.killed {
				tr.kill(a)
			}
			if t.Failed() {
				a.mu.Lock()
				t.Logf("%s: %+v\n%s", a.name, a.reports, &a.errors)
				a.mu.Unlock()
				for _, x := range tr.records(a) {
					t.Logf("   %+v", x)
				}
			}
		}
	})
	return tr
}

// releaseFile is the file that lets a hanging member go on.
func (tr *memberGroup) releaseFile() string { return filepath.Join(tr.dir, "release") }

func (tr *memberGroup) history(name string) string { return filepath.Join(tr.dir, name+".history") }

func (tr *memberGroup) records(a *actor) []roundRecord {
	return readRoundRecords(tr.t, tr.history(a.name), a.name)
}

// spawn starts a member's process, and waits until it has joined.
func (tr *memberGroup) spawn(spec roundMemberSpec) *actor {
	tr.t.Helper()
	a := tr.start(spec)
	tr.awaitReport(a, "ready")
	return a
}

func (tr *memberGroup) start(spec roundMemberSpec) *actor {
	tr.t.Helper()
	spec.Name = fmt.Sprintf("%s-%d", tr.process, len(tr.all))
	spec.Process, spec.Endpoints, spec.History, spec.Release = tr.process, tr.endpoints, tr.history(spec.Name), tr.releaseFile()
	if spec.Timeout == 0 {
		spec.Timeout = memberTimeout
	}
	text, err := json.Marshal(&spec)
	if err != nil {
		tr.t.Fatal(err)
	}
	a := startActor(tr.t, "", "player", spec.Name, roundMemberEnv+"="+string(text))
	tr.all = append(tr.all, a)
	return a
}

// memberTimeout is for sessions that must live; shortTimeout for those whose end a test waits for:
// long enough for a busy machine all the same.
const (
	memberTimeout = time.Minute
	shortTimeout  = 10 * time.Second
)

func (tr *memberGroup) awaitReport(a *actor, event string) {
	tr.t.Helper()
	a.until(tr.t, fmt.Sprintf("%s to say %q", a.name, event), func() bool {
		if r, ok := a.has("failed"); ok {
			tr.t.Fatalf("%s: %s", a.name, r.Text)
		}
		_, ok := a.has(event)
		return ok
	})
}

func (tr *memberGroup) kill(a *actor) {
	a.killed, tr.mayDie[a.name] = true, true
	_ = a.cmd.Process.Kill()
	<-a.ended
	_ = a.cmd.Wait()
}

// leave ends a member's process gracefully.
func (tr *memberGroup) leave(a *actor) {
	tr.t.Helper()
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.ended
	a.killed = true
	if err := a.cmd.Wait(); err != nil {
		r, _ := a.has("failed")
		tr.t.Errorf("%s: %v: %s\n%s", a.name, err, r.Text, &a.errors)
	}
}

// awaitAgreement waits until the last record of each of these members is the completion of one and
// the same round. The round has this many members and an epoch above this one. It returns the
// round's epoch.
func (tr *memberGroup) awaitAgreement(when string, above uint64, members int, roundMembers ...*actor) (epoch uint64) {
	tr.t.Helper()
	await.True(tr.t, fmt.Sprintf("%d members to agree %s", members, when), func() bool {
		epoch = 0
		seen := 0
		for _, a := range roundMembers {
			if r, ok := a.has("failed"); ok {
				tr.t.Fatalf("%s %s: %s", a.name, when, r.Text)
			}
			last := map[uint64]roundRecord{} // by session
			for _, x := range tr.records(a) {
				last[x.Session] = x
			}
			for _, x := range last {
				if x.What != "complete" || x.Members != members || x.Epoch <= above || epoch != 0 && x.Epoch != epoch {
					return false
				}
				epoch = x.Epoch
				seen++
			}
		}
		return seen == members
	})
	return epoch
}

// stopAndCheck ends the living members, and checks the records of all.
func (tr *memberGroup) stopAndCheck() roundSummary {
	tr.t.Helper()
	for _, a := range tr.all {
		if !a.killed {
			_ = a.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, a := range tr.all {
		if !a.killed {
			tr.leave(a)
		}
	}
	var list []roundRecord
	for _, a := range tr.all {
		list = append(list, tr.records(a)...)
	}
	r, err := checkRounds(list, func(name string) bool { return tr.mayDie[name] })
	if err != nil {
		tr.t.Error(err)
	}
	return r
}

// newProcessServer starts a server with a node for coordination processes.
func newProcessServer(t *testing.T) *instance {
	t.Helper()
	in := startInstance(t, binary.Signalbox(t))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_ = in.dial(ctx).Close()
	return in
}

// TestRounds: members of coordination processes are OS processes, and so is the server. Their
// records are checked.
func TestRounds(t *testing.T) {
	form.SkipUntil(t, form.Full, "dozens of processes, and sessions that end")
	t.Parallel()
	in := newProcessServer(t)
	t.Run("come and go", func(t *testing.T) { joinAndLeave(t, in.listen) })
	t.Run("end in each phase", func(t *testing.T) { failInEachPhase(t, in.listen) })
	t.Run("restarted", func(t *testing.T) { restartMember(t, in.listen) })
	t.Run("workload", func(t *testing.T) { joinAtOnce(t, in) })
	if form.Is(form.Long) {
		for k := range 5 {
			t.Run(fmt.Sprintf("again %d", k), func(t *testing.T) {
				joinAndLeave(t, in.listen)
				failInEachPhase(t, in.listen)
				joinAtOnce(t, in)
			})
		}
	}
}

// processNames makes the names of processes differ.
var processNames atomic.Uint64

// failInEachPhase: in each phase of a round, a coordinator is killed, another member is killed, and
// a coordinator is stopped for longer than its session lives. All of these begin first, so that the
// ends of the sessions are awaited together.
func failInEachPhase(t *testing.T, endpoint string) {
	var ends []func()
	for _, phase := range []string{"prepare", "coordinate", "process", "complete"} {
		ends = append(ends, killInPhase(t, endpoint, phase, true), sleepInPhase(t, endpoint, phase))
		if phase != "coordinate" { // nothing runs at another member then
			ends = append(ends, killInPhase(t, endpoint, phase, false))
		}
	}
	for _, end := range ends {
		end()
	}
}

// joinAndLeave: five processes join one by one and leave one by one, and one callback in three
// fails. After each change all hold one value, and each change has one complete round.
func joinAndLeave(t *testing.T, endpoint string) {
	tr := newMemberGroup(t, "come-and-go", endpoint)
	var roundMembers []*actor
	epoch, changes := uint64(0), 0
	for range 5 {
		roundMembers = append(roundMembers, tr.spawn(roundMemberSpec{Unlucky: 3}))
		changes++
		epoch = tr.awaitAgreement(fmt.Sprintf("after change %d", changes), epoch, len(roundMembers), roundMembers...)
	}
	for len(roundMembers) > 1 {
		tr.leave(roundMembers[0])
		roundMembers = roundMembers[1:]
		changes++
		epoch = tr.awaitAgreement(fmt.Sprintf("after change %d", changes), epoch, len(roundMembers), roundMembers...)
	}
	r := tr.stopAndCheck()
	if len(r.complete) != changes {
		t.Errorf("%d rounds are complete for %d changes", len(r.complete), changes)
	}
	t.Logf("%d changes, %d rounds complete, %d epochs; %d prepared rounds of members, %d cancelled", changes,
		len(r.complete), epoch, r.prepared, r.cancelled)
}

// killInPhase: of three members one hangs in a callback of their first round, and is killed there.
// The other two complete a round without it.
func killInPhase(t *testing.T, endpoint, phase string, coordinator bool) (end func()) {
	who := "member"
	if coordinator {
		who = "coordinator"
	}
	tr := newMemberGroup(t, fmt.Sprintf("killed.%s.%s", who, phase), endpoint)
	before, roundMembers, victim := startThreeMembers(tr, phase, coordinator, shortTimeout)
	tr.kill(victim)
	return func() {
		tr.awaitAgreement("without the one that was killed", before, 2, roundMembers...)
		tr.stopAndCheckRounds(5) // rounds of 1, 2, perhaps 3, 2 and 1 members
	}
}

// stopAndCheckRounds is stopAndCheck, with a bound on the rounds that may be complete: the number
// of changes.
func (tr *memberGroup) stopAndCheckRounds(changes int) {
	tr.t.Helper()
	r := tr.stopAndCheck()
	if len(r.complete) > changes {
		tr.t.Errorf("%s: %d rounds are complete for %d changes", tr.process, len(r.complete), changes)
	}
	tr.t.Logf("%s: %d changes at most, %d rounds complete; %d prepared rounds of members, %d of them cancelled",
		tr.process, changes, len(r.complete), r.prepared, r.cancelled)
}

// startThreeMembers starts three members. One of them, the coordinator or the last to join, hangs
// in a callback of their first round.
func startThreeMembers(
	tr *memberGroup, phase string, coordinator bool, timeout time.Duration,
) (epoch uint64, others []*actor, victim *actor) {
	tr.t.Helper()
	mayDie := roundMemberSpec{Hang: phase, Size: 3, Timeout: timeout}
	if coordinator {
		victim = tr.spawn(mayDie)
	} else {
		others = append(others, tr.spawn(roundMemberSpec{}))
	}
	for len(others) < 2 {
		epoch = tr.awaitAgreement("before another joins", epoch, 1+len(others)-btoi(!coordinator), tr.all...)
		others = append(others, tr.spawn(roundMemberSpec{}))
	}
	if !coordinator {
		epoch = tr.awaitAgreement("before another joins", epoch, 2, tr.all...)
		victim = tr.spawn(mayDie)
	}
	tr.awaitReport(victim, "there")
	return epoch, others, victim
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sleepInPhase: the coordinator hangs in a callback, and is stopped for longer than its session
// lives. The others agree without it. When it resumes, it still takes itself for the coordinator.
// The server accepts none of that. Its round is cancelled if it was not decided before, and its
// membership ends.
func sleepInPhase(t *testing.T, endpoint, phase string) (end func()) {
	tr := newMemberGroup(t, "asleep."+phase, endpoint)
	before, roundMembers, victim := startThreeMembers(tr, phase, true, shortTimeout)
	tr.mayDie[victim.name] = true
	if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		epoch := tr.awaitAgreement("without the one that sleeps", before, 2, roundMembers...)
		if err := os.WriteFile(tr.releaseFile(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := victim.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		tr.awaitReport(victim, "over")
		<-victim.ended
		victim.killed = true
		if err := victim.cmd.Wait(); err != nil {
			t.Errorf("%s: the sleeper ended with %v", tr.process, err)
		}
		if last := tr.awaitAgreement("after it woke up", before, 2, roundMembers...); last != epoch {
			t.Errorf("%s: the round of epoch %d was followed by %d when the sleeper woke up", tr.process, epoch, last)
		}
		list := tr.records(victim)
		if len(list) == 0 || list[len(list)-1].What != "terminate" {
			t.Errorf("%s: the sleeper has no end: %+v", tr.process, list)
		}
		for _, x := range list {
			if x.Epoch >= epoch {
				t.Errorf("%s: the sleeper did %s of epoch %d", tr.process, x.What, x.Epoch)
			}
		}
		tr.stopAndCheckRounds(5)
	}
}

// restartMember: a member with a key is killed and restarted while its former session lives, twice.
// It takes its place by its key and resumes the round that the others have completed; there is no
// new one. Its token is higher each time.
func restartMember(t *testing.T, endpoint string) {
	tr := newMemberGroup(t, "restarted", endpoint)
	others := []*actor{tr.spawn(roundMemberSpec{})}
	epoch := tr.awaitAgreement("alone", 0, 1, others...)
	keyed := tr.spawn(roundMemberSpec{Key: "two", Timeout: shortTimeout})
	epoch = tr.awaitAgreement("at first", epoch, 2, append(others, keyed)...)
	token := uint64(0)
	for k := range 3 {
		tr.awaitConfirmed()
		list := tr.records(keyed)
		last := list[len(list)-1]
		if last.Token <= token || last.Resumed != (k > 0) {
			t.Errorf("life %d is %+v, after the token %d", k, last, token)
		}
		token = last.Token
		if k == 2 {
			break
		}
		tr.kill(keyed)
		keyed = tr.spawn(roundMemberSpec{Key: "two", Timeout: shortTimeout})
		if again := tr.awaitAgreement("after a restart", 0, 2, append(others, keyed)...); again != epoch {
			t.Errorf("the round of epoch %d was followed by %d", epoch, again)
		}
	}
	tr.stopAndCheckRounds(3) // two joins, and a leave at the end
}

// awaitConfirmed waits until all members have confirmed that the last round is complete.
func (tr *memberGroup) awaitConfirmed() {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(tr.t.Context(), waitLimit)
	defer cancel()
	c, err := client.Dial(ctx, tr.endpoints[0])
	if err != nil {
		tr.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	n, err := c.Node(ctx, nodePath)
	if err != nil {
		tr.t.Fatal(err)
	}
	await.True(tr.t, "all to confirm", func() bool {
		s, err := process.NewOperator(n, tr.process).Describe(ctx)
		return err == nil && s.Phase == process.Completed && len(s.Lagging()) == 0
	})
}

// joinAtOnce: ten processes join with 20 sessions each, at once. At the end there are not more
// complete rounds than joins.
func joinAtOnce(t *testing.T, in *instance) {
	tr := newMemberGroup(t, "workload", in.listen)
	const processes, sessions = 10, 20
	completed := roundsCompleted(t, in)
	began := now()
	for range processes {
		tr.start(roundMemberSpec{Sessions: sessions})
	}
	epoch := tr.awaitAgreement("when all have joined", 0, processes*sessions, tr.all...)
	took := now() - began
	if n := roundsCompleted(t, in) - completed; n > processes*sessions {
		t.Errorf("%d rounds are complete for %d joins", n, processes*sessions)
	} else {
		t.Logf("%d members of %d processes agreed in epoch %d, %s after the first process was started; %d rounds complete",
			processes*sessions, processes, epoch, took.Round(time.Millisecond), n)
	}
	tr.stopAndCheck()
}

// roundsCompleted is how many rounds were completed so far, by the server's metrics.
func roundsCompleted(t *testing.T, in *instance) (n int) {
	t.Helper()
	r, err := http.Get("http://" + in.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var shard string
		var count int
		if k, _ := fmt.Sscanf(strings.NewReplacer(",", " ", "}", " ").Replace(line),
			`signalbox_process_rounds_ended_total{shard=%q outcome="completed" %d`, &shard, &count); k == 2 {
			n += count
		}
	}
	return n
}

// TestRoundsLeaderKilled: in each phase of a round, the coordinator or another member hangs; then
// the leader of their shard is killed. All members complete a round under another leader, with the
// sessions that they have.
func TestRoundsLeaderKilled(t *testing.T) {
	form.SkipUntil(t, form.Full, "dozens of processes")
	t.Parallel()
	c := newCluster(t, "--shards", "1")
	c.startThree()
	names := c.names()
	c.makeNode()
	times := form.Of(1, 5)
	for k := range times {
		var groups []*memberGroup
		var before []uint64
		for _, phase := range []string{"prepare", "coordinate", "process", "complete"} {
			for _, coordinator := range []bool{true, false} {
				if phase == "coordinate" && !coordinator {
					continue
				}
				tr := newMemberGroup(t, fmt.Sprintf("leader.%s.%t", phase, coordinator), c.endpoints()...)
				epoch, _, _ := startThreeMembers(tr, phase, coordinator, memberTimeout)
				groups, before = append(groups, tr), append(before, epoch)
			}
		}
		s := c.awaitReady("before the leader is killed", names...)
		if len(s.Shards) != 1 {
			t.Fatalf("there are %d shards", len(s.Shards))
		}
		victim := c.instances[s.Shards[0].Master]
		began := now()
		victim.kill()
		for i, tr := range groups {
			if err := os.WriteFile(tr.releaseFile(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				tr.awaitAgreement("after the leader was killed", before[i], 3, tr.all...)
				t.Logf("the first agree %s after the leader was killed", (now() - began).Round(time.Millisecond))
			}
		}
		for i, tr := range groups {
			tr.awaitAgreement("after the leader was killed", before[i], 3, tr.all...)
			tr.stopAndCheckRounds(5)
		}
		if k < times-1 {
			victim.start()
			c.awaitReady("after the killed one was started again", names...)
		}
	}
}
