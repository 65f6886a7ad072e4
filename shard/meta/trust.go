package meta

import (
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// formatTrusts is the first format that has trusts.
const formatTrusts = 2

// Bounds of trusts, part of format version 2. A trust is one entry of the log, so its rules and
// keys together are bounded too.
const (
	maxTrusts     = 64
	maxTrustRules = 256
	maxConditions = 16
	maxTrustBytes = 128 << 10

	MaxTrustText = 1024 // an issuer, an audience, a claim or a pattern, in bytes
	MaxTrustName = 64
	MaxTrustKeys = 64 << 10
)

// Trust says whose signed tokens count as credentials, and which identities their subjects have
// here. Package server/trust checks tokens, server/issuer fetches keys.
type Trust struct {
	Name       string
	Issuer     string      // a token's iss; may be empty with SPIFFE: any
	SPIFFE     string      // trust domain of a token's sub, and of certificates; empty: sub may be any text
	Audience   string      // one of a token's aud
	Rules      []TrustRule // tried in this order; the first that matches decides
	Keys       []byte      // a JSON Web Key Set of public keys, as the proposer wrote it; empty: no token counts
	KeysGiven  bool        // by an operator: they are not fetched
	CA         []byte      // PEM of the authorities that sign the issuer's certificate; empty: the system's
	BearerFile string      // file on the instances with a token for the issuer; empty: none
	KeysAt     uint64      // wall clock of the proposer in ms when the keys came, for display
	CreatedAt  uint64      // likewise
	Revision   uint64      // of the state that has it
}

type (
	// TrustRule gives tokens that meet all conditions an identity.
	TrustRule = protocol.AuthTrustRule
	// TrustCondition is a pattern for a claim's value.
	TrustCondition = protocol.AuthTrustCondition
)

// Fetched reports whether the meta shard's leader fetches the keys from the issuer.
func (t *Trust) Fetched() bool { return !t.KeysGiven && strings.HasPrefix(t.Issuer, "https://") }

func (t *Trust) fields(f *varint.Fields) {
	f.Text(&t.Name, MaxTrustName)
	f.Text(&t.Issuer, MaxTrustText)
	f.Text(&t.SPIFFE, MaxTrustText)
	f.Text(&t.Audience, MaxTrustText)
	varint.List(f, &t.Rules, maxTrustRules, func(r *TrustRule, f *varint.Fields) {
		varint.List(f, &r.If, maxConditions, func(c *TrustCondition, f *varint.Fields) {
			f.Text(&c.Claim, MaxTrustText)
			f.Text(&c.Pattern, MaxTrustText)
		})
		f.Text(&r.As, maxIdentity)
	})
	f.Bytes(&t.Keys, MaxTrustKeys)
	f.Bool(&t.KeysGiven)
	f.Bytes(&t.CA, MaxTrustKeys)
	f.Text(&t.BearerFile, MaxTrustText)
	f.Uint(&t.KeysAt, &t.CreatedAt, &t.Revision)
}

// check says what is wrong with a trust. The proposer checks the characters and the keys.
func (t *Trust) check() string {
	switch {
	case t.Name == "" || len(t.Name) > MaxTrustName:
		return "a trust needs a name of 1 to 64 bytes"
	case t.Issuer == "" && t.SPIFFE == "" || len(t.Issuer) > MaxTrustText || len(t.SPIFFE) > MaxTrustText:
		return "a trust needs an issuer or a SPIFFE trust domain, of up to 1024 bytes"
	case t.Audience == "" || len(t.Audience) > MaxTrustText:
		return "a trust needs an audience of 1 to 1024 bytes"
	case len(t.Rules) > maxTrustRules:
		return "a trust has up to 256 rules"
	case len(t.Keys) > MaxTrustKeys || len(t.CA) > MaxTrustKeys:
		return "the keys of a trust, and the certificates of its authorities, have up to 64 KiB"
	case len(t.BearerFile) > MaxTrustText:
		return "the path of a file has up to 1024 bytes"
	}
	for _, r := range t.Rules {
		if bad := checkTrustRule(&r); bad != "" {
			return bad
		}
	}
	bare := *t
	bare.KeysAt, bare.CreatedAt, bare.Revision = 0, 0, 0
	if len(varint.Encode(nil, bare.fields)) > maxTrustBytes {
		return "a trust has up to 128 KiB with its rules, keys and authorities; give fewer"
	}
	return ""
}

func checkTrustRule(r *TrustRule) string {
	if len(r.If) == 0 || len(r.If) > maxConditions {
		return "a rule needs 1 to 16 conditions; sub=* means every token of the issuer"
	}
	for _, c := range r.If {
		if c.Claim == "" || len(c.Claim) > MaxTrustText || len(c.Pattern) > MaxTrustText {
			return "a condition names a claim, and claim and pattern have up to 1024 bytes"
		}
	}
	return checkIdentity(r.As)
}

// Trusts are in order of name. Their last change changed the revision of Tokens too.
func (x *access) Trusts() []Trust { return x.trusts }

func (x *access) findTrust(name string) (int, bool) {
	return slices.BinarySearchFunc(x.trusts, name, func(t Trust, name string) int { return strings.Compare(t.Name, name) })
}

// Trust returns the trust with a name.
func (x *access) Trust(name string) (Trust, bool) {
	i, ok := x.findTrust(name)
	if !ok {
		return Trust{}, false
	}
	return x.trusts[i], true
}

// TrustPut adds a trust, or replaces the one that has the revision. With Revision 0 the trust is
// new: ALREADY_EXISTS if its name is in use. With another one: NOT_FOUND if there is no such trust,
// ABORTED if it was changed since.
type TrustPut struct{ Trust }

func (*TrustPut) kind() Kind    { return KindTrustPut }
func (*TrustPut) format() uint8 { return formatTrusts }

func (c *TrustPut) fields(f *varint.Fields) { c.Trust.fields(f) }

func (c *TrustPut) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if bad := c.check(); bad != "" {
		return refuse(protocol.StatusBadRequest, "%s", bad)
	}
	i, ok := s.findTrust(c.Name)
	switch {
	case ok && c.Revision == 0:
		return refuse(protocol.StatusAlreadyExists, "a trust %q exists; choose another name, or delete it first", c.Name)
	case !ok && c.Revision != 0:
		return noTrust(c.Name)
	case ok && c.Revision != s.trusts[i].Revision:
		return refuse(protocol.StatusAborted, "the trust %q was changed in the meantime; look again and retry", c.Name)
	case !ok && len(s.trusts) >= maxTrusts:
		return refuse(protocol.StatusPreconditionFailed, "there are %d trusts, the limit; delete some first", maxTrusts)
	}
	put := c.Trust
	put.Revision = s.revision
	if s.trusts = slices.Clone(s.trusts); ok {
		s.trusts[i] = put
	} else {
		s.trusts = slices.Insert(s.trusts, i, put)
	}
	s.authRevision = s.revision
	return Result{}
}

func noTrust(name string) Result {
	return refuse(protocol.StatusNotFound, "there is no trust %q; `signalbox auth trust ls` lists them", name)
}

// TrustRemove deletes a trust; NOT_FOUND if there is none.
type TrustRemove struct{ Name string }

func (*TrustRemove) kind() Kind    { return KindTrustRemove }
func (*TrustRemove) format() uint8 { return formatTrusts }

func (c *TrustRemove) fields(f *varint.Fields) { f.Text(&c.Name, MaxTrustName) }

func (c *TrustRemove) apply(s *State) Result {
	i, ok := s.findTrust(c.Name)
	if !ok {
		return noTrust(c.Name)
	}
	s.trusts = slices.Delete(slices.Clone(s.trusts), i, i+1)
	s.authRevision = s.revision
	return Result{}
}
