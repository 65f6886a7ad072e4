package operator

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// trustPrefix is the prefix of methods about trusts.
const trustPrefix = AuthPrefix + "trust_"

// MaxTrustKeys is the most bytes of a trust's keys.
const MaxTrustKeys = meta.MaxTrustKeys

// serveTrust answers a method about a trust.
func (a *AuthMethods) serveTrust(ctx context.Context, method string, in *protocol.AuthTrust) (any, error) {
	if err := checkWord("name of a trust", in.Name, meta.MaxTrustName); err != nil {
		return nil, err
	}
	var change func(t *meta.Trust) error
	var err error
	switch method {
	case protocol.MethodTrust:
		t, ok := a.State().Trust(in.Name)
		if !ok {
			return nil, noTrust(in.Name)
		}
		out := authTrust(&t)
		out.Keys, out.CA = string(t.Keys), string(t.CA)
		return out, nil
	case protocol.MethodTrustDelete:
		return struct{}{}, a.RemoveTrust(ctx, in.Name)
	case protocol.MethodTrustCreate:
		change, err = createTrust(in)
	case protocol.MethodTrustMap:
		change, err = mapTrust(in)
	case protocol.MethodTrustKeys:
		change, err = setTrustKeys(in)
	default:
		err = protocol.Errorf(protocol.StatusUnsupported, "method %s is not known here; upgrade the older side", method)
	}
	if err != nil {
		return nil, err
	}
	if err := a.ChangeTrust(ctx, in.Name, change); err != nil {
		return nil, err
	}
	t, _ := a.State().Trust(in.Name)
	out := authTrust(&t)
	if method == protocol.MethodTrustCreate && t.Fetched() {
		if err := a.FetchKeys(ctx, in.Name); err != nil {
			out.Problem = err.Error()
		}
	}
	return out, nil
}

// createTrust makes a trust. A request that is sent again finds the trust that it has made.
func createTrust(in *protocol.AuthTrust) (func(t *meta.Trust) error, error) {
	for what, text := range map[string]string{"issuer": cmp.Or(in.Issuer, in.SPIFFE), "audience": in.Audience,
		"path of --bearer-file": cmp.Or(in.BearerFile, "/")} {
		if err := checkWord(what, text, meta.MaxTrustText); err != nil {
			return nil, err
		}
	}
	if in.SPIFFE != "" && !trust.CheckDomain(in.SPIFFE) {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"%.40q is no SPIFFE trust domain; write it as example.org, in lower case", in.SPIFFE)
	}
	if in.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(in.CA)) {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the authorities have no certificate; give them as PEM")
	}
	if err := checkRules(in.Rules); err != nil {
		return nil, err
	}
	return func(t *meta.Trust) error {
		if in.Replace {
			if t.Issuer != in.Issuer || t.SPIFFE != in.SPIFFE {
				t.Keys, t.KeysGiven = nil, false
			}
			t.Rules = in.Rules
		} else if t.Revision != 0 && (t.Issuer != in.Issuer || t.SPIFFE != in.SPIFFE || t.Audience != in.Audience ||
			string(t.CA) != in.CA || t.BearerFile != in.BearerFile || len(t.Rules) > 0) {
			return protocol.Errorf(protocol.StatusAlreadyExists,
				"a trust %q exists; choose another name, or delete it first", in.Name)
		}
		t.Issuer, t.SPIFFE, t.Audience, t.CA, t.BearerFile = in.Issuer, in.SPIFFE, in.Audience, []byte(in.CA), in.BearerFile
		return nil
	}, nil
}

// mapTrust appends rules, unless they are the last ones already.
func mapTrust(in *protocol.AuthTrust) (func(t *meta.Trust) error, error) {
	if err := checkRules(in.Rules); err != nil {
		return nil, err
	}
	rules := in.Rules
	return func(t *meta.Trust) error {
		if t.Revision == 0 {
			return noTrust(in.Name)
		}
		if had := len(t.Rules) - len(rules); had < 0 || !slices.EqualFunc(t.Rules[had:], rules, trust.SameRule) {
			t.Rules = append(slices.Clip(t.Rules), rules...)
		}
		return nil
	}, nil
}

func checkRules(rules []meta.TrustRule) error {
	for _, r := range rules {
		if bad := trust.CheckRule(r.As); bad != "" {
			return protocol.Errorf(protocol.StatusBadRequest, "a rule gives %.40q, and %s", r.As, bad)
		}
		for _, c := range r.If {
			if err := checkWord("claim", c.Claim, meta.MaxTrustText); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckToken checks a token by a trust that MethodTrust answered. The error of a token that fails
// has values of it.
func CheckToken(t *protocol.AuthTrust, token []byte, now time.Time) (*trust.Subject, error) {
	x, err := trust.NewSet([]meta.Trust{{Name: t.Name, Issuer: t.Issuer, SPIFFE: t.SPIFFE, Audience: t.Audience, Keys: []byte(t.Keys),
		Rules: t.Rules}}, nil).Check(token, now)
	if why, ok := errors.AsType[*trust.Error](err); ok {
		err = errors.New(why.Explain())
	}
	return x, err
}

func setTrustKeys(in *protocol.AuthTrust) (func(t *meta.Trust) error, error) {
	if len(in.Keys) > meta.MaxTrustKeys {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the keys have %d bytes; give up to %d", len(in.Keys),
			meta.MaxTrustKeys)
	}
	kept, _, err := trust.ReadKeys([]byte(in.Keys))
	if err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the keys cannot be taken: %v", err)
	}
	return func(t *meta.Trust) error {
		if t.Revision == 0 {
			return noTrust(in.Name)
		}
		t.Keys, t.KeysGiven = kept, true
		return nil
	}, nil
}

func noTrust(name string) error {
	return protocol.Errorf(protocol.StatusNotFound, "there is no trust %q; `signalbox auth trust ls` lists them", name)
}

// authTrust is the document of a trust, without its keys.
func authTrust(t *meta.Trust) protocol.AuthTrust {
	_, list, _ := trust.ReadKeys(t.Keys)
	return protocol.AuthTrust{Name: t.Name, Issuer: t.Issuer, SPIFFE: t.SPIFFE, Audience: t.Audience, Rules: t.Rules,
		KeyIDs: list, KeysGiven: t.KeysGiven, BearerFile: t.BearerFile, KeysAtMS: t.KeysAt, CreatedAtMS: t.CreatedAt}
}
