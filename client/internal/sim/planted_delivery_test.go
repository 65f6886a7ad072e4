package sim

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

// deliveryFaults are in how events reach connections, and in which process an instance takes for
// alive.
var deliveryFaults = []plantedFault{
	{
		"watch-after-read", "server/request/read.go",
		[]string{"if err := hub.OneShot(c.ID(), d.Session, d.Node, d.Name, d.Flags, d.WatchID,\n\t\tm.Nodes().MaxWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}", `session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)
	time.AfterFunc(3*time.Millisecond, func() { _ = hub.OneShot(c.ID(), session, node, name, flags, id, most) })`},
		"server/integration", "TestWatchBesideWrites", "",
	},
	{
		"watch-just-after-read", "server/request/read.go",
		[]string{"if err := hub.OneShot(c.ID(), d.Session, d.Node, d.Name, d.Flags, d.WatchID,\n\t\tm.Nodes().MaxWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}", `session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.Nodes().MaxWatchers(d.Node)
	time.AfterFunc(5*time.Millisecond, func() { _ = hub.OneShot(c.ID(), session, node, name, flags, id, most) })`},
		"server/integration", "TestWatchBesideWrites", "",
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
		"object-not-restarted", "server/delivery/object_stream.go",
		[]string{"o.shard, body), true) {\n\t\ts.live = false\n", "o.shard, body), true) {\n\t\treturn\n"},
		"server/delivery", "TestObjectStreamFallsBehind", "",
	},
	{
		"tracks-not-restarted", "server/delivery/hubs.go",
		[]string{"\t\tx.snapshotInstalled()\n", "\t\tif x != hub(h.Tracks) {\n\t\t\tx.snapshotInstalled()\n\t\t}\n"},
		"server/delivery", "TestSnapshotInstalled", "",
	},
	{
		"frozen-track-kept", "server/delivery/object_stream.go",
		[]string{"run.has(o.bucket)", "func(node uint64, name []byte) bool { return !o.leaderOnly && run.has(o.bucket)(node, name) }"},
		"server/delivery", "TestWatchesEnd", "",
	},
	{
		"detached-by-itself", "server/delivery/hubs.go",
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
}
