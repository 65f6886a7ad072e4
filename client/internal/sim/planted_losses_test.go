package sim

const lossFile = "client/internal/core/loss.go"

// lossFaults have the SDK's engine say of a loss that something else took it away than did.
var lossFaults = []plantedFault{
	{
		"stall-forgotten", "client/internal/core/engine.go",
		[]string{"\tnoteStall(e, stall{from: from, to: now, slept: slept})\n", "\t_ = slept\n"},
		"client/internal/core", "TestLosses", "",
	},
	{
		"sleep-taken-for-stop", lossFile,
		[]string{"return x.slept > (x.to-x.from)/2", "return x.slept > x.to"},
		"client/internal/core", "TestLosses", "",
	},
	{
		"answer-counted-late", lossFile,
		[]string{"\t\tif heard > a.sent {", "\t\tif heard > 0 {"},
		"client/internal/core", "TestLosses", "",
	},
	{
		"stop-without-proof", lossFile,
		[]string{"max(still, asleep) >= max(least, d)", "max(still, asleep) >= 0"},
		"client/internal/core", "TestLosses", "",
	},
	{
		"stop-counted-twice", lossFile,
		[]string{"d = to - t.until - stood - slept\n", "d = to - t.until\n\t\t_, _ = stood, slept\n"},
		"client/internal/core", "TestLosses", "",
	},
	{
		"others-forgotten", lossFile, // only what none answers is unreachable
		[]string{"\tt.spent[unreachable] -= t.streak\n\tt.spent[noLeader] += t.streak\n", ""},
		"client/internal/core", "TestLosses", "",
	},
	{
		"pause-of-a-refusal", lossFile,
		[]string{"if d := t.spend(e, cause, sent); cause == unreachable {", "if d := t.spend(e, unexplained, sent); cause == unreachable {"},
		"client/internal/core", "TestLosses", "",
	},
}
