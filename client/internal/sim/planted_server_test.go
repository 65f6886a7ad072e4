package sim

// serverFaults are in how a cluster's groups change, and in who may stay connected.
var serverFaults = []plantedFault{
	{
		"removal-as-planned", "server/governor/membership.go",
		[]string{"case !mayRemove(m, r.Replica, g.live(&x)):", "case !mayRemove(m, r.Replica, func(uint64) bool { return true }):"},
		"server/governor", "TestVoterDiesAfterThePlan", "",
	},
	{
		"promotion-as-planned", "server/governor/membership.go",
		[]string{"case !mayPromote(m, r.Replica, g.live(&x)) || !g.fresh(r.Instance):", "case !mayPromote(m, r.Replica, func(uint64) bool { return true }):"},
		"server/governor", "TestVoterDiesAfterThePlan", "",
	},
	{
		"rightless-stay", "server/auth/view.go",
		[]string{"(found[identity] || everything&^v.state.Rights", "(found[identity] || identity == \"\" && everything&^v.state.Rights"},
		"server/integration", "TestAuthTurnedOn", "",
	},
	{
		"tokens-without-rights-stay", "server/request/credentials.go",
		[]string{"lost(c.identity) && !exempt {", "lost(c.identity) && !exempt && (!turnsOn || v.AllowedAnywhere(c.identity, auth.RightUse)) {"},
		"server/integration", "TestAuthTurnedOn", "",
	},
	{
		"expelled-holds-version-back", "shard/meta/version.go",
		[]string{"in := &s.instances[i]; !in.Expelled() && in", "in := &s.instances[i]; in"},
		"server/governor", "TestVersionModel", "",
	},
	{
		"expelled-not-planned-around", "server/governor/upgrade.go",
		[]string{"\t\tif i.Expelled() {\n\t\t\tcontinue\n\t\t}\n", ""},
		"server/governor", "TestVersionModel", "",
	},
	{
		"expelled-is-third-version", "shard/meta/version.go",
		[]string{"in.ID == self || in.Expelled() ||", "in.ID == self ||"},
		"server/governor", "TestVersionModel", "",
	},
	{
		"leaving-counts-as-gone", "shard/meta/version.go",
		[]string{"!in.Expelled() && in.Version", "in.Target.Variant != Expelled && in.Version"},
		"server/governor", "TestVersionModel", "",
	},
}
