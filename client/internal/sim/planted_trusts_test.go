package sim

// trustFaults are in what is checked of a platform's token, in the keys of trusts, and in how long
// what a token gave counts.
var trustFaults = []plantedFault{
	{
		"algorithm-of-the-token-alone", "server/trust/trust.go",
		[]string{"case !slices.Contains(k.algorithms, jose.SignatureAlgorithm(h.Algorithm)):", "case false:"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"any-algorithm", "server/trust/key.go",
		[]string{"jose.ES384, jose.EdDSA}\n\n", "jose.ES384, jose.EdDSA, jose.HS256, jose.RS512}\n\n"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"key-of-any-name", "server/trust/trust.go",
		[]string{`case h.KeyID != "" && k.KeyID != h.KeyID:`, "case false:"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"no-name-of-several-keys", "server/trust/trust.go",
		[]string{`h.KeyID == "" && len(o.keys) > 1:`, `h.KeyID == "" && len(o.keys) > 9:`},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"algorithm-of-the-key-ignored", "server/trust/key.go",
		[]string{`k.Algorithm != "" && string(a) != k.Algorithm`, "false"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"critical-header-ignored", "server/trust/key.go",
		[]string{`ExtraHeaders["crit"] != nil`, `ExtraHeaders["crt"] != nil`},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"audience-by-its-beginning", "server/trust/trust.go",
		[]string{"!slices.Contains(c.Audience, o.Audience):",
			"!slices.ContainsFunc(c.Audience, func(a string) bool { return bytes.HasPrefix([]byte(a), []byte(o.Audience)) }):"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"issuer-with-a-slash", "server/trust/trust.go",
		[]string{`o.Issuer != "" && o.Issuer != c.Issuer`,
			`o.Issuer != "" && o.Issuer != string(bytes.TrimSuffix([]byte(c.Issuer), []byte("/")))`},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"leeway-beyond-the-end", "server/trust/trust.go",
		[]string{"case !now.Before(c.Expiry.Time()):", "case now.Sub(c.Expiry.Time()) > leeway:"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"a-day-and-its-leeway", "server/trust/trust.go",
		[]string{"> maxLifetime:", "> maxLifetime+leeway:"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"one-byte-more", "server/trust/key.go",
		[]string{"if len(token) > maxToken {", "if len(token) > maxToken+1 {"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"numbers-lose-their-text", "server/trust/trust.go",
		[]string{"\td.SetNumberType(json.UnmarshalJSONNumber)\n", ""},
		"server/trust", "TestTokensThatPass", "",
	},
	{
		"pattern-inside-a-text", "server/trust/rule.go",
		[]string{`"(?s)^"+`, `"(?s)"+`},
		"server/trust", "TestMatches", "",
	},
	{
		"another-key-of-its-name", "server/trust/trust.go",
		[]string{"k.text == x.key.text", "k.KeyID == x.KeyID"},
		"server/trust", "TestHolds", "",
	},
	{
		"remembered-beyond-its-end", "server/trust/trust.go",
		[]string{"if subject.Expires.Before(until) {", "if subject.Expires.After(until) {"},
		"server/trust", "TestRecall", "",
	},
	{
		"claims-make-administrators", "server/trust/rule.go",
		[]string{"identity == meta.AdminIdentity && as != identity", "false"},
		"server/trust", "TestTokensThatFail", "",
	},
	{
		"authority-is-a-workload", "server/trust/spiffe.go",
		[]string{"case c.IsCA || ", "case "},
		"server/trust", "TestX509SVID", "",
	},
	{
		"keys-of-another-issuer", "server/issuer/fetch.go",
		[]string{"if about.Issuer != t.Issuer {", `if about.Issuer == "" {`},
		"server/issuer", "TestWrongIssuers", "",
	},
	{
		"bearer-follows-a-redirect", "server/issuer/fetch.go",
		[]string{"r.URL.Host != first.Host || ", ""},
		"server/issuer", "TestWrongIssuers", "",
	},
	{
		"withdrawn-key-comes-back", "server/issuer/keeper.go",
		[]string{" || !bytes.Equal(t.Keys, before) {", " {"},
		"server/issuer", "TestLateKeys", "",
	},
	{
		"trusts-before-the-upgrade", "shard/meta/trust.go",
		[]string{"func (*TrustPut) format() uint8 { return formatTrusts }", "func (*TrustPut) format() uint8 { return firstFormat }"},
		"shard/meta", "TestTrustsWaitForTheUpgrade", "",
	},
	{
		"key-outlives-its-set", "server/auth/view.go",
		[]string{"case !v.trusts.Holds(x):", "case false:"},
		"server/integration", "TestPlatformTokenIsGone", "",
	},
	{
		"token-outlives-its-end", "server/auth/view.go",
		[]string{"case !now.Before(x.Expires):", "case false:"},
		"server/integration", "TestPlatformTokenExpires", "",
	},
	{
		"claims-in-the-log", "server/trust/trust.go",
		[]string{"func (e *Error) Error() string { return e.Check }", "func (e *Error) Error() string { return e.Check + e.Values }"},
		"server/integration", "TestNothingOfATokenIsSaid", "",
	},
}
