package main

import (
	"strings"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/server/trust"
)

const defaultAudience = "signalbox"

// readTrust reads a trust of a document: its keys are those of the flags of auth trust create, but
// for ca, which has the text itself, and rules.
func readTrust(o *desired.Object, settings []desired.Entry) error {
	t := &admin.Trust{Name: o.Name, Audience: defaultAudience}
	var rules []struct {
		If []string
		As string
	}
	keys := map[string]any{"issuer": &t.Issuer, "spiffe": &t.SPIFFE, "audience": &t.Audience, "ca": &t.CA, "bearer-file": &t.BearerFile,
		"rules": &rules}
	for _, e := range settings {
		to := keys[e.Key]
		if to == nil {
			return e.At.Errorf("unknown key %q; a trust has issuer, spiffe, audience, ca, bearer-file, rules", e.Key)
		}
		if err := e.Value.Decode(to); err != nil {
			return e.ValueAt().Errorf("%s is not what it has to be: a text, or of rules a list such as "+
				"[{if: [repository=octo/*], as: ci}]", e.Key)
		}
		if e.Key != "rules" {
			continue
		}
		for _, r := range rules {
			rule, err := trustRule(r.If, r.As)
			if err != nil {
				return e.ValueAt().Errorf("%v", err)
			}
			t.Rules = append(t.Rules, rule)
		}
	}
	if t.Issuer == "" && t.SPIFFE == "" {
		return o.At.Errorf("%s has neither an issuer nor a spiffe; give one", o.Key)
	}
	showTrust(o, t)
	return nil
}

// trustRule is a rule of CLAIM=PATTERN texts.
func trustRule(conditions []string, as string) (rule admin.TrustRule, err error) {
	for _, text := range conditions {
		claim, pattern, ok := strings.Cut(text, "=")
		if !ok || claim == "" {
			return rule, usagef("condition %q is no CLAIM=PATTERN; write it as repository=octo/*", text)
		}
		rule.If = append(rule.If, admin.TrustCondition{Claim: claim, Pattern: pattern})
	}
	if as == "" || len(rule.If) == 0 {
		return rule, usagef("a rule needs a condition CLAIM=PATTERN and an identity; sub=* means every token of the issuer")
	}
	if bad := trust.CheckRule(as); bad != "" {
		return rule, usagef("a rule gives %.40q, and %s", as, bad)
	}
	rule.As = as
	return rule, nil
}

// showTrust fills an object in. Keys are none of it: they are fetched, or given by auth trust keys.
func showTrust(o *desired.Object, t *admin.Trust) {
	var rules []desired.Value
	for _, r := range t.Rules {
		var conditions []string
		for _, c := range r.If {
			conditions = append(conditions, c.Claim+"="+c.Pattern)
		}
		v := desired.Map()
		v.Add("if", desired.Texts(conditions))
		v.Add("as", desired.Text(r.As))
		rules = append(rules, v)
	}
	text := func(key, value, without string) desired.Setting {
		return desired.Setting{Key: key, Value: desired.Text(value), Default: value == without}
	}
	o.Settings = []desired.Setting{text("issuer", t.Issuer, ""), text("spiffe", t.SPIFFE, ""),
		text("audience", t.Audience, defaultAudience), text("ca", t.CA, ""), text("bearer-file", t.BearerFile, ""),
		{Key: "rules", Value: desired.List(rules...), Default: len(rules) == 0}}
	o.Config = t
}
