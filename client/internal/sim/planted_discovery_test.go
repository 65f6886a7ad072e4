package sim

// discoveryFaults are in members of services, and in the calls to them.
var discoveryFaults = []plantedFault{
	{
		"state-of-now-written", "client/discovery/registration.go",
		[]string{"r.noteWritten(m, edition, &sent)", "r.noteWritten(m, edition, &r.status)"},
		"client/discovery", "TestStateChangesWhileWritten", "",
	},
	{
		"change-while-written-lost", "client/discovery/registration.go",
		[]string{"\tr.noteWritten(m, edition, &sent)\n", "\tr.noteWritten(m, edition, &sent)\n\tselect {\n\tcase <-r.changed:\n\tdefault:\n\t}\n"},
		"client/discovery", "TestStateChangesWhileWritten", "",
	},
	{
		"probe-cancelled-for-good", "client/discovery/transport.go",
		[]string{"\t\tb.probing = false\n\t} else", "\t} else"},
		"client/discovery", "TestCancelledRequests", "",
	},
	{
		"cancelled-is-failed", "client/discovery/transport.go",
		[]string{"if errors.Is(err, context.Canceled) || err != nil && came == stale", "if err != nil && came == stale"},
		"client/discovery", "TestCancelledRequests", "",
	},
	{
		"cancelled-in-flight", "client/discovery/transport.go",
		[]string{"\tif err != nil {\n\t\ts.done(b)\n", "\tif err != nil {\n\t\tif !errors.Is(err, context.Canceled) {\n\t\t\ts.done(b)\n\t\t}\n"},
		"client/discovery", "TestCancelledRequests", "",
	},
	{
		"failed-write-not-repeated", "client/discovery/registration.go",
		[]string{"\t\tcase r.publish(ctx) != nil:\n\t\t\tt.Reset(stateInterval)\n", "\t\tdefault:\n\t\t\t_ = r.publish(ctx)\n"},
		"client/discovery", "TestFailedWritesAreRepeated", "",
	},
	{
		"failed-write-taken-for-none", "client/discovery/health.go",
		[]string{"case state == s.written && !s.unsure:", "case state == s.written:"},
		"client/discovery", "TestFailedWritesAreRepeated", "",
	},
	{
		"failed-update-forgotten", "client/discovery/registration.go",
		[]string{"\tcase err != nil:\n\t\tr.lookAtState()\n", ""},
		"client/discovery", "TestFailedWritesAreRepeated", "",
	},
	{
		"given-up-update-forgotten", "client/discovery/registration.go",
		[]string{"time.Now(), edition != present\n", "time.Now(), edition > present\n"},
		"client/discovery", "TestFailedWritesAreRepeated", "",
	},
}
