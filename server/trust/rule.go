package trust

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// maxIdentity is the most bytes of an identity.
const maxIdentity = 255

// apply gives a token's claims an identity, by the first rule that matches.
func (o *source) apply(c *claims) (*Subject, *Error) {
	var failed, values []string
	for i := range o.Rules {
		r := &o.Rules[i]
		bad := failing(r, c.all)
		if bad == nil {
			identity, err := expand(r.As, c.all)
			if err != nil {
				err.Check = fmt.Sprintf("rule %d matches, and %s", i+1, err.Check)
				return nil, err
			}
			return &Subject{Identity: identity, Trust: o.Name, Rule: i + 1, Expires: c.Expiry.Time(), Issuer: c.Issuer,
				Subject: c.Subject, TokenID: c.ID, by: o.Trust}, nil
		}
		failed = append(failed, fmt.Sprintf("rule %d by %s", i+1, bad.Claim))
		values = append(values, fmt.Sprintf("%s is %s, not %q", bad.Claim, show(lookUp(c.all, bad.Claim)), bad.Pattern))
	}
	if failed == nil {
		return nil, refuse("the trust has no rules")
	}
	return nil, &Error{Check: "no rule matches: " + strings.Join(failed, ", "), Values: strings.Join(values, "; ")}
}

// failing returns the first condition that claims do not meet; nil: they meet all.
func failing(r *meta.TrustRule, all map[string]any) *meta.TrustCondition {
	for i := range r.If {
		if c := &r.If[i]; !meets(lookUp(all, c.Claim), c.Pattern) {
			return c
		}
	}
	return nil
}

// lookUp returns a claim: a.b is b inside the object a. A claim's own name may have dots too, as
// that of Kubernetes has: the longest name that is there counts.
func lookUp(all map[string]any, path string) any {
	if v, ok := all[path]; ok {
		return v
	}
	for end := strings.LastIndexByte(path, '.'); end > 0; end = strings.LastIndexByte(path[:end], '.') {
		if inner, ok := all[path[:end]].(map[string]any); ok {
			if v := lookUp(inner, path[end+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// meets reports whether a claim, or one element of a list, matches a pattern.
func meets(claim any, pattern string) bool {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	for _, v := range list {
		if text, ok := textOf(v); ok && matches(text, pattern) {
			return true
		}
	}
	return false
}

// textOf returns a value as patterns see it. Objects, lists and null have no text.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// matches reports whether a text is the pattern, in which * stands for any run of characters.
func matches(text, pattern string) bool {
	if !strings.Contains(pattern, "*") {
		return text == pattern
	}
	ok, err := regexp.MatchString("(?s)^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$", text)
	return ok && err == nil
}

// expand puts claims into an identity: {claim} stands for the claim's value.
func expand(as string, all map[string]any) (string, *Error) {
	missing := ""
	identity := inBraces.ReplaceAllStringFunc(as, func(claim string) string {
		value, ok := textOf(lookUp(all, claim[1:len(claim)-1]))
		if !ok {
			missing = claim
		}
		return value
	})
	if missing != "" {
		return "", refuse("the claim " + missing + ", of which it makes the identity, is missing or not one text")
	}
	for len(identity) > maxIdentity {
		_, n := utf8.DecodeLastRuneInString(identity)
		identity = identity[:len(identity)-n]
	}
	bad := badIdentity(identity)
	if bad == "" && identity == meta.AdminIdentity && as != identity {
		bad = "its identity is admin, which a claim cannot choose"
	}
	if bad != "" {
		return "", &Error{Check: bad, Values: fmt.Sprintf("%q", identity)}
	}
	return identity, nil
}

func badIdentity(identity string) string {
	switch {
	case identity == "", strings.ContainsFunc(identity, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }):
		return "its identity is empty, or has characters that cannot be shown"
	case identity == meta.AnonymousIdentity || strings.HasPrefix(identity, meta.CertIdentity):
		return "its identity is anonymous, or begins with cert:"
	}
	return ""
}

var (
	braces   = regexp.MustCompile(`^([^{}]|\{[^{}]+\})*$`) // each pair holds a claim's name
	inBraces = regexp.MustCompile(`\{[^{}]+\}`)
)

// SameRule reports whether two rules are the same.
func SameRule(a, b meta.TrustRule) bool { return a.As == b.As && slices.Equal(a.If, b.If) }

// CheckRule says what is wrong with the identity of a rule; empty: nothing.
func CheckRule(as string) string {
	if !braces.MatchString(as) || len(as) > maxIdentity {
		return "the identity has braces that do not hold a claim's name, or more than 255 bytes; write it as '{repository}'"
	}
	return badIdentity(as)
}

func show(v any) string {
	if v == nil {
		return "missing"
	}
	text, _ := json.Marshal(v) // it was decoded
	return fmt.Sprintf("%.200s", text)
}
