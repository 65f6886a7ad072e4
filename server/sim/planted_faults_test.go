package sim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plantedFault is a change of a file of the code, and the test that finds it. The change is applied
// with go's overlay while the test is built: the code itself has no trace of it.
type plantedFault struct {
	name, file string
	edits      []string // old and new text in turn; each old text is in the file once
	dir, run   string

	// histories selects the faults of a run of the checked histories, which is the test then. It
	// needs root.
	histories string
}

// streamAfterRead registers a stream over a process or a track 3 ms after its state is read.
var streamAfterRead = []string{
	"\"sync/atomic\"\n", "\"sync/atomic\"\n\t\"time\"\n",
	"o.byName[key][filter] = append(o.byName[key][filter], s)", `time.AfterFunc(3*time.Millisecond, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.byName[key] == nil {
			o.byName[key] = make(map[F][]*objectStream[F])
		}
		o.byName[key][filter] = append(o.byName[key][filter], s)
	})`,
}

// restartBounds gives each hold with a bound its time again.
const restartBounds = `for s := range m.semaphores.all(m.buckets) {
			for e := s.owners.first; e != nil; e = next(e, byOrder) {
				if p := e.place(); p != nil && p.until != 0 {
					p.until = m.bucketTime(s.bucket) + 10_000
					scheduleBound(m, e)
				}
			}
		}`

// plantedFaults are first those that the simulation finds, or another test of the same rule, then
// those of other layers, as in the tables of DESIGN.md.
var plantedFaults = []plantedFault{
	{
		"old-epoch", "shard/apply.go",
		[]string{"h.Epoch < m.epoch || h.Epoch > m.epoch && !takes", "h.Epoch > m.epoch && !takes"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"no-grace", "shard/node.go",
		[]string{"func (n *node) graceAt(at uint64) uint64 {\n", "func (n *node) graceAt(at uint64) uint64 {\n\treturn 0\n"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"grace-at-once", "shard/node.go",
		[]string{"if n.graceFloor > n.config.GracePeriod && at", "if n.graceFloor > n.config.GracePeriod && at > math.MaxUint64-1 && at"},
		"shard", "TestScripts", "",
	},
	{
		"time-restarts", "shard/takeover.go",
		[]string{"m.transferring = false\n\t}", "m.transferring = false\n\t\tfor p := range m.sessions.all() {\n\t\t\tif s := p.home; s != nil && !p.ended && !s.attached {\n\t\t\t\tm.touch(p)\n\t\t\t\tm.schedule(s, max(s.timer.at, m.logTime+uint64(s.timeout)))\n\t\t\t}\n\t\t}\n\t}"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"handed-stays", "shard/takeover.go",
		[]string{"m.transferring = c.body[0] == 1", "m.transferring = c.body[0] == 1 || m.transferring"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"sweep-restarts", "shard/takeover.go",
		[]string{"if !t.sweeping {\n\t\tt.sweeping,", "{\n\t\tt.sweeping,"},
		"shard", "TestScripts", "",
	},
	{
		"over-limit", "shard/semaphore.go",
		[]string{"count <= s.limit-s.used", "count-1 <= s.limit-s.used"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"past-queue", "shard/acquire.go",
		[]string{"s.waiters.n == 0 && s.fits(x.Count)", "s.fits(x.Count)"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"orders-restart", "shard/import.go",
		[]string{"max(b.orderCounter, r.orderCounter)", "max(b.orderCounter, 1)"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"no-memory", "shard/request.go",
		[]string{
			"q.kind == CmdAcquire && q.seq < p.low", "q.kind == 0 && q.seq < p.low",
			"again := p.findAnswer(head)", "p.findAnswer(head)\n\tvar again *answer",
			"case seq < p.low:", "case false:",
		},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"memory-stays", "shard/import.go",
		[]string{"if len(r.answers) > 0 || r.low > p.low {", "if false {"},
		"shard", "TestBucketsMove", "",
	},
	{
		"gone-forgotten", "shard/remote_session.go",
		[]string{"if m.endedRemotes.has(id, m.logTime) {", "if false {"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"any-activate", "shard/move.go",
		[]string{"case b.state == bucketImported && b.epoch == epoch,\n\t\tb.state == bucketFrozen && b.moveEpoch < epoch,\n\t\tb.state",
			"case b.state == bucketImported,\n\t\tb.state == bucketFrozen,\n\t\tb.state"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"not-released", "shard/move.go",
		[]string{"if !woken {", "if woken || !woken {"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"nonce-ignored", "shard/session.go",
		[]string{"case x.Epoch == s.epoch && x.Nonce != s.nonce:", "case false:"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"from-receipt", "client/core/keep_alive.go",
		[]string{"v.at = max(v.at, c.keepAlive.sentAt(ping))", "v.at = max(v.at, c.heard)"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"old-low", "client/core/request.go",
		[]string{"Seq: r.seq, Low: r.session.numbers.Low()}", "Seq: r.seq, Low: min(r.seq, r.session.numbers.Low())}"},
		"client/core", "TestScripts", "",
	},
	{
		"release-overtakes", "client/core/request.go",
		[]string{"case r.after != 0 && r.via != c && s.numbers.Low() <= r.after:", "case r.after != 0 && r.via != c && s.numbers.Low() < 1:"},
		"client/core", "TestScripts", "",
	},
	{
		"epoch-doubled", "client/core/attachment.go",
		[]string{"(a.msg.Epoch == 0 || a.unanswered)", "a.msg.Epoch == 0"},
		"client/core", "TestScripts", "",
	},
	{
		"grant-over-lost-route", "client/core/acquire.go",
		[]string{"case a.att != s.attachment || a.from.over || e.routes.moved(a.tier, a.arg, a.shard, a.from), ", "case s.attachment == nil, "},
		"client/core", "TestScripts", "",
	},
	{
		"pong-of-another", "client/core/session.go",
		[]string{"\t\ts.machine.Renewed(a.renewal.at)\n", "\t\tfor _, c := range e.conns {\n\t\t\ts.machine.Renewed(c.renewal(a.shard).at)\n\t\t}\n"},
		"client/core", "TestScripts", "",
	},
	{
		"abandoned-stays", "client/core/acquire.go",
		[]string{"case sent && a.Lease != nil:\n\t\ta.undo(e)", "case sent && a.Lease == nil:\n\t\ta.undo(e)"},
		"client/core", "TestScripts", "",
	},
	{
		"bad-session-ignored", "client/core/request.go",
		[]string{"\t\tr.session.notKnownOn(e, r, on)\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"bad-session-of-one", "client/core/session.go",
		[]string{"\t\tc.detachHome(e, a.shard)\n", "\t\ts.connLost(e)\n"},
		"client/core", "TestScripts", "",
	},
	{
		"ticket-kept", "client/core/ticket.go",
		[]string{"== protocol.StatusBadSession && !p.att.over {", "== protocol.StatusBadSession && p.att.over {"},
		"client/core", "TestScripts", "",
	},
	{
		"release-forgotten", "client/core/retry.go",
		[]string{"if r.op.left(e, err); r.state != Over {", "if r.op.left(e, err); r.state == Over {"},
		"client/core", "TestScripts", "",
	},
	{
		"silent-behind-hello", "client/core/keep_alive.go",
		[]string{"\tif k.busy { // requests", "\tif false { // requests"},
		"client/core", "TestScripts", "",
	},
	{
		"one-shot-stays", "client/gateway/describe.go",
		[]string{"\t\td.s.Driver.Disarm(&d.shot.OneShot) // nobody waits for it\n", ""},
		"client/gateway", "TestFailedDescribeWatchesNothing", "",
	},
	{
		"ticket-forever", "client/core/session.go",
		[]string{"r.att == a && r.badSessions > 1:", "r.att == a && r.badSessions > 99:"},
		"client/core", "TestScripts", "",
	},
	{
		"stop-given-up", "client/core/stop.go",
		[]string{"case err == nil || sessionGone(err):", "case err == nil || sessionGone(err) || bad && x.msg.Epoch == x.own:"},
		"client/core", "TestScripts", "",
	},
	{
		"shard-forgotten", "client/core/watch.go",
		[]string{"&p.msg, shard, w.former[shard]", "&p.msg, shard, 0"},
		"client/core", "TestScripts", "",
	},
	{
		"home-forgotten", "client/core/shard_stream.go",
		[]string{"\t\tp.leave()\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"closed-part-silent", "client/core/watch.go",
		[]string{"\t\tw.wake(e) // the others", "\t\t// the others"},
		"client/core", "TestScripts", "",
	},
	{
		"detach-twice", "shard/leader/attached_sessions.go",
		[]string{"\t\tif s.detachID == 0 { // else", "\t\tif true { // else"},
		"shard/leader", "TestScripts", "",
	},
	{
		"detach-forgotten", "shard/leader/attached_sessions.go",
		[]string{"\t\tl.leave(s)\n\t\tif s.detachID == 0 {", "\t\tl.leave(s)\n\t\tif true {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"wait-renumbered", "client/core/request.go",
		[]string{"\tcase again:\n", "\tcase again:\n\t\tr.seq = 0\n"},
		"client/core", "TestScripts", "",
	},
	{
		"left-behind", "client/core/request.go",
		[]string{"\t\tif s.err != nil { // the step", "\t\tif s.err != nil && s.stopped { // the step"},
		"client/core", "TestScripts", "",
	},
	{
		"granted-forgotten", "client/core/acquire.go",
		[]string{"\t\ta.unanswered = true // it has an entry at the server\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"stop-unsent", "client/core/session.go",
		[]string{"\tif stop {\n", "\tif stop && s.attachment != nil {\n"},
		"client/core", "TestScripts", "",
	},
	{
		"stream-goes-back", "client/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if true {"},
		"client/core", "TestScripts", "",
	},
	{
		"bucket-epoch-unread", "client/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if index >= p.seen {"},
		"client/core", "TestScripts", "",
	},
	{
		"no-barrier", "shard/leader/pong.go",
		[]string{"\tc.waitingPing = ping\n",
			"\tif c.canPong() {\n\t\tv.ready.Pongs = append(v.ready.Pongs, Pong{connID, ping})\n\t\treturn\n\t}\n\tc.waitingPing = ping\n"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"early-barrier", "shard/leader/pong.go",
		[]string{"\tfor _, c := range l.pings.inFlight {\n\t\tping := c.inFlightPing", "\tfor _, c := range l.pings.waiting {\n\t\tif !c.pingInFlight {\n\t\t\tl.pings.inFlight = append(l.pings.inFlight, c)\n\t\t}\n\t\tc.pingInFlight, c.inFlightPing, c.pingWaiting, c.waitingPing = true, c.waitingPing, false, 0\n\t}\n\tl.pings.waiting = nil\n\tfor _, c := range l.pings.inFlight {\n\t\tping := c.inFlightPing"},
		"shard/leader", "TestScripts", "",
	},
	{
		"pong-in-doubt", "shard/leader/conn.go",
		[]string{"c.undecided == 0 && len(c.sessions) > 0", "len(c.sessions) > 0"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"moves-unasked", "shard/leader/event.go",
		[]string{
			"l.liveness.frozen(first, count)\n\t\tl.ready.Compare = true", "l.liveness.frozen(first, count)\n\t\tl.ready.Compare = false",
			"if l.enter(now) {\n\t\tl.ready.Compare = true", "if l.enter(now) {\n\t\tl.ready.Compare = false",
			"l.subscribers.left(first, count)\n\t\tl.ready.Compare = true", "l.subscribers.left(first, count)\n\t\tl.ready.Compare = false",
		},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"start-unasked", "shard/leader/remote_table.go",
		[]string{"range remotes {\n\t\tt.held(id)", "range remotes[:0] {\n\t\tt.held(id)"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"link-kept", "shard/leader/subscription.go",
		[]string{"now-s.lastProof > t.cfg.SelfCheck {", "now < s.lastProof {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"home-kept", "shard/leader/subscription.go",
		[]string{
			"if s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch {", "if false {",
			"case !m.known || s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch:", "case false:",
		},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"non-owner", "shard/leader/subscriber_request.go",
		[]string{"active && epoch == a.bucketEpoch {", "active && epoch == a.bucketEpoch || true {"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"ask-unproved", "shard/leader/event.go",
		[]string{"l.subscribers.receiveSubscribe(from, m) })", "l.subscribers.receiveSubscribe(from, m)\n\t\t\tq := &l.subscribers.requests\n\t\t\tq.inFlight, q.waiting = append(q.inFlight, q.waiting...), nil\n\t\t\tl.subscribers.replyRequests(st)\n\t\t})"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"release-once", "shard/leader/remote_update.go",
		[]string{"\t\tg.releaseID = 0\n\t\tt.ended.push(g)\n", ""},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"retry-is-gone", "shard/leader/subscription_reply.go",
		[]string{"case stateRetry:\n", "case stateRetry:\n\t\t\tt.sessionEnded(e.session)\n\t\t\tcontinue\n"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"gap-refused", "shard/session.go",
		[]string{"case x.Epoch < s.epoch:", "case x.Epoch < s.epoch || x.Epoch > s.epoch+1 && x.Nonce == s.nonce:"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"newer-refused", "shard/remote_session.go",
		[]string{"if epoch < p.epoch {", "if epoch != p.epoch {"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"wait-endless", "shard/import.go",
		[]string{"if r.timed {", "if r.timed && r.at == 0 {"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"pause-counts", "shard/leader/clock.go",
		[]string{"if paused {", "if false {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"age-ignored", "shard/leader/unlogged_attach.go",
		[]string{"furthest+age+v.Timeout", "furthest+v.Timeout"},
		"shard/leader", "TestMayAttachUnlogged", "",
	},
	{
		"epoch-kept", "shard/leader/remote_table.go",
		[]string{"|| epoch != g.bucketEpoch {", "|| false && epoch != g.bucketEpoch {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"whole-timeout", "client/sessionstate/window.go",
		[]string{"return min(timeout*85/100, ", "return max(timeout, "},
		"client/sessionstate", "TestWindow", "",
	},
	{
		"token-at-enqueueing", "shard/queue.go",
		[]string{"\ts.bucket.orderCounter++\n\te.session.renumber(e, s.bucket.orderCounter)\n", ""},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"late-mark-unmoved", "shard/queue_record.go",
		[]string{"varint.Decode(r, q.fields)\n\tnames", "varint.Decode(r, q.fields)\n\tq.late = q.laned()\n\tnames"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"claim-forgotten", "shard/examine.go",
		[]string{"available.remove(l.admits)\n\t\t}\n\t\tif", "n = 0\n\t\t}\n\t\tif"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"highest-slot", "shard/slot_list.go",
		[]string{"w &= w - 1 {", "w &^= 1 << (63 - bits.LeadingZeros64(w)) {", "list = append(list, uint32(i*64+bits.TrailingZeros64(w)))", "list = slices.Insert(list, 0, uint32(i*64+63-bits.LeadingZeros64(w)))"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"lane-kept", "shard/lane.go",
		[]string{"if q.class(want) == p.lane.class && want.selector", "if want.selector"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"virtual-time-stays", "shard/fair_queue.go",
		[]string{"max(f.virtual, tag)", "max(f.virtual, 0)"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"weight-of-enqueueing", "shard/alter.go",
		[]string{"q.policy, q.aging, q.weights = o.Policy, o.Aging, cloneWeights(o.Weights) })", "q.policy, q.aging = o.Policy, o.Aging })\n\t\tq.weights = cloneWeights(o.Weights)"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"start-not-moved", "shard/fair_queue.go",
		[]string{"k.start = tag", "k.start = min(k.start, tag)"},
		"shard", "TestFairBound", "",
	},
	{
		"aging-ignored", "shard/lane_order.go",
		[]string{"q.policy == protocol.PolicyPriority && q.aging == 0:", "q.policy == protocol.PolicyPriority:", "case q.policy == protocol.PolicyPriority:\n\t\t// Each", "case false:\n\t\t// Each"},
		"shard", "TestAgingBound", "",
	},
	{
		"plain-marked", "shard/semaphore.go",
		[]string{"\tif options != nil {\n\t\ts.setOptions(options)\n\t}\n", "\tif s.setOptions(new(protocol.SemaphoreOptions)); options != nil {\n\t\ts.setOptions(options)\n\t} else {\n\t\ts.ownQueue().late = true\n\t}\n"},
		"shard", "TestPlainUse", "",
	},
	{
		"ended-unknown", "shard/bound.go",
		[]string{"(cause != protocol.HoldWanted || p.want.known)", "(cause != protocol.HoldWanted || p.want.number != 0)"},
		"shard", "TestScripts", "",
	},
	{
		"bound-unasked", "shard/bound.go",
		[]string{"hold != 0 && p.knowsBounds() {", "hold != 0 {"},
		"shard", "TestScripts", "",
	},
	{
		"late-known-counts", "shard/wanted.go",
		[]string{"w.known = w.known || known == w.number", "w.known = true"},
		"shard", "TestScripts", "",
	},
	{
		"want-untold", "shard/place.go",
		[]string{"Want: p.want.number}", "Want: 0 * p.want.number}"},
		"shard", "TestScripts", "",
	},
	{
		"more-wanted", "shard/wanted_choice.go",
		[]string{"less.fits() {", "less.fits() && k < 0 {"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"bound-restarts", "shard/takeover.go",
		[]string{"m.transferring = false\n\t}", "m.transferring = false\n\t\t" + restartBounds + "\n\t}"},
		"shard", "TestScripts", "",
	},
	{
		"bound-restarts-moved", "shard/import.go",
		[]string{"\t\t\tscheduleBound(m, e)", "\t\t\tif r.place.until != 0 {\n\t\t\t\tr.place.until = m.bucketTime(s.bucket) + 10_000\n\t\t\t}\n\t\t\tscheduleBound(m, e)"},
		"shard", "TestScripts", "",
	},
	{
		"partial-refused", "shard/restore_link.go",
		[]string{"q == nil || l.s.bucket.state.isPartial()", "q == nil"},
		"shard", "TestScripts", "",
	},
	{
		"handed-to-dead", "shard/hand_over.go",
		[]string{"!to.waiting || m.waiterEnded(to) ||", "!to.waiting ||"},
		"shard", "TestHandOverToWaiterOfNoTime", "",
	},
	{
		"former-unsaved", "shard/record.go",
		[]string{"uint64(len(n.formerGraces)))\n\tfor _, f := range n.formerGraces {", "0)\n\tfor _, f := range n.formerGraces[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"open-unsaved", "shard/record.go",
		[]string{"uint64(len(t.open)))\n\tfor _, o := range t.open {", "0)\n\tfor _, o := range t.open[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"ending-unsaved", "shard/record.go",
		[]string{"uint64(len(m.ending)))\n\tfor _, p := range m.ending {", "0)\n\tfor _, p := range m.ending[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"dropped-unsaved", "shard/record.go",
		[]string{"uint64(len(m.dropped)))\n\tlast := uint64(0)\n\tfor _, id := range m.dropped {",
			"0)\n\tlast := uint64(0)\n\tfor _, id := range m.dropped[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"floor-unrestored", "shard/restore.go",
		[]string{"n.graceFloor, n.graceFloorAt = r.Uint(), r.Uint()", "n.graceFloor, n.graceFloorAt = r.Uint(), 0*r.Uint()"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"restore-overflows", "shard/restore_link.go",
		[]string{" || s.used+e.count < s.used", ""},
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"import-overflows", "shard/import.go",
		[]string{"(s.waiters.n > 0 && !s.lateTokens() || s.used+r.count < s.used)", "s.waiters.n > 0 && !s.lateTokens()"},
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"watch-after-read", "server/request/read.go",
		[]string{"if err := hub.OneShot(c.ID(), d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}", `session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)
	time.AfterFunc(3*time.Millisecond, func() { _ = hub.OneShot(c.ID(), session, node, name, flags, id, most) })`},
		"server/integration", "TestWatchBesideWrites", "",
	},
	{
		"watch-just-after-read", "server/request/read.go",
		[]string{"if err := hub.OneShot(c.ID(), d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}", `session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)
	time.AfterFunc(0, func() { _ = hub.OneShot(c.ID(), session, node, name, flags, id, most) })`},
		"server/integration", "TestWatchBesideWrites", "",
	},
	{
		"nonce-unmoved", "shard/chunk.go",
		[]string{"f = varint.Append(f, s.nonce)", "f = varint.Append(f, 0)"},
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"since-unimported", "shard/import.go",
		[]string{"timeout: r.timeout, since: r.since, data: cloneOrNil(r.data)", "timeout: r.timeout, data: cloneOrNil(r.data)"},
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"completed-unsaved", "shard/process/record.go",
		[]string{"f.Uint(&m.session, &m.completedEpoch, &m.until)", "f.Uint(&m.session, new(uint64), &m.until)"},
		"shard/process", "TestEveryFieldIsKept", "",
	},
	{
		"report-time-unsaved", "shard/rollout/record.go",
		[]string{"&i.seq, &i.reportGen, &i.reportAt)", "&i.seq, &i.reportGen, new(uint64))"},
		"shard/rollout", "TestEveryFieldIsKept", "",
	},
	{
		"detached-outlives-epoch", "shard/remote_session.go",
		[]string{"r.epoch, r.detached = epoch, false", "r.epoch = epoch"},
		"shard", "TestDetachedStateEndsWithEpoch", "",
	},
	{
		"detached-untold", "shard/leader/remote_update.go",
		[]string{"if have.Tracks == 0 {", "if have.Session != ^uint64(0) {"},
		"client/rollout", "TestClusterDetachedGivesUpItsID", "",
	},
	{
		"stream-never-live", "server/delivery/watch_stream.go",
		[]string{"s.live, s.lastPaged, s.cursor = true, nil, nil", "s.lastPaged, s.cursor = nil, nil"},
		"server/delivery", "TestScripts", "",
	},
	{
		"stream-misplaced", "server/delivery/watch_stream.go",
		[]string{"t.streams[s.index].index = s.index\n", "\n"},
		"server/delivery", "TestRaces", "",
	},
	{
		"stream-unnamed", "server/delivery/object_stream.go",
		[]string{"o.byName[key][filter] = append(o.byName[key][filter], s)", "o.byName[key][filter] = o.byName[key][filter][:]"},
		"server/integration", "TestProcessRounds", "",
	},
	{
		"process-stream-after-read", "server/delivery/object_stream.go",
		streamAfterRead,
		"server/integration", "TestStreamsBesideWrites/process", "",
	},
	{
		"track-stream-after-read", "server/delivery/object_stream.go",
		streamAfterRead,
		"server/integration", "TestStreamsBesideWrites/track", "",
	},
	{
		"split-loses", "server/delivery/watch_fanout.go",
		[]string{"return changes[:n], changes[n:]", "return changes[:n], changes[min(n+1, len(changes)):]"},
		"server/delivery", "TestDeltaIsSplit", "",
	},
	{
		"last-slice-taken", "server/delivery/watch_fanout.go",
		[]string{"for _, frames := range runs {", "for i, frames := range runs {", "if !h.send.Send(c.id, frames, true) {", "if !h.send.Send(c.id, frames, true) && (i == 0 || i < len(runs)-1) {"},
		"server/delivery", "TestRefusedSlice", "",
	},
	{
		"resume-skips", "server/delivery/history.go",
		[]string{"x.deltas[i].index > known })", "x.deltas[i].index > known+1 })"},
		"server/delivery", "TestScripts", "",
	},
	{
		"resume-ahead", "server/delivery/history.go",
		[]string{"(known > index || s.epoch > epoch)", "s.epoch > epoch"},
		"server/delivery", "TestScripts", "",
	},
	{
		"resume-other-log", "server/delivery/history.go",
		[]string{"if !ok || s.epoch != epoch {", "if !ok {"},
		"server/delivery", "TestScripts", "",
	},
	{
		"history-outlives-snapshot", "server/delivery/watch_hub.go",
		[]string{"h.dropHistories(anyHistory)\n\th.pages.dropAll()", "h.pages.dropAll()"},
		"server/delivery", "TestScripts", "",
	},
	{
		"page-claims-newest", "server/delivery/watch_stream.go",
		[]string{"if s.node.pending[s.key] == nil {", "if s.known == 0 {"},
		"server/delivery", "TestScripts", "",
	},
	{
		"page-outlives-delta", "server/delivery/watch_fanout.go",
		[]string{"\th.pages.drop(p.node.names[p.key])\n", ""},
		"server/delivery", "TestScripts", "",
	},
	{
		"resume-unknown-kind", "client/core/shard_stream.go",
		[]string{"\tp.known = 0\n\tp.restart(e)", "\tp.restart(e)"},
		"client/core", "TestScripts", "",
	},
	{
		"resume-too-much-known", "client/core/watch.go",
		[]string{"p.msg.Known, p.msg.Epoch = p.known, p.epoch", "p.msg.Known, p.msg.Epoch = p.known+1, p.epoch"},
		"client/core", "TestWorld", "",
	},
	{
		"object-not-restarted", "server/delivery/object_stream.go",
		[]string{"o.shard, body), true) {\n\t\ts.live = false\n", "o.shard, body), true) {\n\t\treturn\n"},
		"server/delivery", "TestObjectStreamFallsBehind", "",
	},
	{
		"tracks-not-restarted", "server/delivery/shard.go",
		[]string{"\ts.Tracks.Restart()\n", ""},
		"server/delivery", "TestSnapshotInstalled", "",
	},
	{
		"frozen-track-kept", "server/delivery/shard.go",
		[]string{"s.Tracks.Cut(in(protocol.Bucket), protocol.StatusWrongShard,", "_ = []any{protocol.StatusWrongShard,", "\"the track's bucket moves to another shard; fetch the map and ask its instance\")", "\"the track's bucket moves to another shard; fetch the map and ask its instance\"}"},
		"server/delivery", "TestWatchesEnd", "",
	},
	{
		"detached-by-itself", "server/delivery/shard.go",
		[]string{"if was == 0 || was>>16 == epoch>>16 {", "if was == 0 {"},
		"server/delivery", "TestWatchesEnd", "",
	},
	{
		"flusher-asleep", "server/delivery/watch_hub.go",
		[]string{"\t\t\th.opt.Wake(p.due)\n", ""},
		"server/delivery", "TestFlusher", "",
	},
	{
		"one-shots-counted-up", "server/delivery/one_shot.go",
		[]string{"\tw.count--\n", ""},
		"server/delivery", "TestWatchBounds", "",
	},
	{
		"process-page-lost", "server/delivery/process_stream.go",
		[]string{"\t\tif out.Last {\n\t\t\ts.live = true", "\t\tif len(out.Status.Members) > 0 || out.Last {\n\t\t\ts.live = true"},
		"server/delivery", "TestProcessPages", "",
	},
	{
		"former-process-ready", "server/governor/plan_instances.go",
		[]string{"case h.Incarnation != i.Target.Incarnation:", "case h.Incarnation > i.Target.Incarnation:"},
		"server/governor", "TestFormerProcess", "",
	},
	{
		"former-process-founds", "server/governor/plan_replicaset_phases.go",
		[]string{"p.Health[i.ID].Incarnation == i.Target.Incarnation", "p.Health[i.ID].Incarnation <= i.Target.Incarnation"},
		"server/governor", "TestFormerProcess", "",
	},
	{
		"logged-not-renewed", "server/session/conn.go",
		[]string{"\tb.Unlogged = false\n\tc.countHome(b, 1)\n", "\tb.Unlogged = false\n"},
		"server/session", "TestLoggedAttachIsRenewed", "",
	},
	{
		"nodes-shared", "server/session/binding.go",
		[]string{"k.Node == node && ", ""},
		"server/session", "TestBindingsShareLittle", "",
	},
	{
		"end-not-remembered", "server/session/table.go",
		[]string{"\t\tt.ended.add(session, sessionEnd{c.ID(), reason}, now)\n", "\t\t_, _ = c, now\n"},
		"server/session", "TestSessionEnds", "",
	},
	{
		"unbound-stays", "server/session/conn.go",
		[]string{"\tb.Conn.Table.remove(b)\n\tb.Conn.forget(b, ended)", "\tb.Conn.forget(b, ended)"},
		"server/session", "TestSessionEnds", "",
	},
	{
		"taken-over-untold", "server/session/table.go",
		[]string{"\t\tb.Conn.Append(protocol.KindTakenOver, 0, 0, &protocol.TakenOver{Session: b.Session, Epoch: epoch})\n", "\t\t_ = protocol.TakenOver{Epoch: epoch}\n"},
		"server/session", "TestTakenOver", "",
	},
	{
		"watch-not-reopened", "client/core/shard_stream.go",
		[]string{"\t\tp.retry.failures++\n\t\te.send(&p.Request)\n", "\t\tp.retry.failures++\n"},
		"client/core", "TestScripts", "",
	},
	{
		"change-beside-pages-lost", "client/core/watch.go",
		[]string{"p.pages.held = append(p.pages.held, delta{d.name, d.index, slices.Clone(d.changes)})",
			"p.pages.held = append(p.pages.held[:0], delta{d.name, d.index, slices.Clone(d.changes)})"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"copy-data-stale", "client/core/local_copy.go",
		[]string{"a.version, a.data = c.version, c.data", "a.version = c.version"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"copy-owner-stale", "client/core/local_copy.go",
		[]string{"if found && sameOwner(&s.owners[i], &o) {", "if found && i >= 0 {"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"own-writes-hidden", "client/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"client/core", "TestWorld", "",
	},
	{
		"own-writes-hidden", "client/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"server/chaos", "TestCheckedHistories", "^SIGKILL of the leader while nothing of it arrives",
	},
	{
		"limit-starts-full", "client/ratelimit/leaf.go",
		[]string{"if now >= ends {\n\t\tlevel = min(level, 0)", "if now >= ends || old.rate == 0 {\n\t\tlevel = int64(x.Burst)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{ // in the model of the simulation; limit-read-unconfirmed is the same in the server's code
		"limit-no-barrier", "client/ratelimit/simulation_test.go",
		[]string{"b.asked, b.led = true, l == x.leader", "b.asked, b.led = true, true"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-read-unconfirmed", "server/request/read.go",
		[]string{"body: h.Body, strict: true,", "body: h.Body,"},
		"server/integration", "TestLimitBarriers", "",
	},
	{
		"limit-unlearned", "shard/ratelimit/leases.go",
		[]string{"began: began, learning: true", "began: began, learning: began == 0"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-grown-first", "shard/ratelimit/leases.go",
		[]string{"roomRate, roomBurst := l.room(h)", "roomRate, roomBurst := uint64(maxRate), uint64(maxRate)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-refresh-each-denial", "client/ratelimit/demand.go",
		[]string{"return byQuarter(wants, d.reported) ||", "return wants > 0 || byQuarter(wants, d.reported) ||"},
		"client/ratelimit", "TestDemandChanges", "",
	},
	{
		"limit-changed-unheard", "client/core/event.go",
		[]string{", protocol.KindLimitChanged:\n", ":\n"},
		"client/core", "TestEventsReachTheirStream", "",
	},
	{
		"limit-shrunk-for-lent", "shard/ratelimit/compute.go",
		[]string{"if wants := l.wants(h); wants < rate {", "if wants := l.wants(h); wants < rate/1000 {"},
		"shard/ratelimit", "TestNobodyShrinksForWhatIsLent", "",
	},
	{
		"limit-calls-jump", "client/ratelimit/demand.go",
		[]string{"d.average == 0 || d.enough(attempted, need)) {", "attempted > 0) {"},
		"client/ratelimit", "TestFewCalls", "",
	},
	{
		"limit-members-kept", "shard/ratelimit/leases.go",
		[]string{"case len(l.members) > 0: //", "case len(l.members) > MaxParticipants: //"},
		"shard/ratelimit", "TestNothingIsKept", "",
	},
	{
		"limit-trees-kept", "shard/leader/rate_limits.go",
		[]string{"\tdelete(r.trees, string(r.keyOf(x.node, []byte(x.name))))\n", "\t_ = r.keyOf(x.node, []byte(x.name))\n"},
		"shard/leader", "TestRateLimitsComeAndGo", "",
	},
	{
		"limit-notice-late", "shard/ratelimit/leases.go",
		[]string{"return min(l.computed+computeEvery, l.notifyAt), true", "return l.computed + computeEvery, true"},
		"shard/ratelimit", "TestNotifiedAtOnce", "",
	},
	{
		"limit-number-twice", "shard/ratelimit/leases.go",
		[]string{"\tl.numbers++\n", "\tl.numbers = 1\n"},
		"client/ratelimit", "TestSimulation", "",
	},
}

// TestPlantedFaultsApply: each old text is in its file once.
func TestPlantedFaultsApply(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range plantedFaults {
		t.Run(f.name, func(t *testing.T) { overlayOf(t, root, f.file, f.edits) })
	}
}

// overlayOf writes a file's changed form, and the list that has go build it in place of the file.
func overlayOf(t *testing.T, root, file string, edits []string) (overlay string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(file))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(edits); i += 2 {
		if n := strings.Count(text, edits[i]); n != 1 {
			t.Fatalf("%s has %d places with %q, and one is to be changed", file, n, edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	err = errors.Join(err, os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}
