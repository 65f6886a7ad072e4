package protocol

// Methods of Cluster about tokens and rights. All need the right admin on everything, but for
// MethodWhoAmI. Secrets are shown once, when they are made.
const (
	MethodWhoAmI      = "auth_whoami"       // -> AuthIdentity
	MethodAuth        = "auth_show"         // -> AuthState
	MethodAuthSwitch  = "auth_turn"         // AuthSwitchRequest -> AuthToken, that of the first administrator if one was made
	MethodTokenCreate = "auth_token_create" // AuthTokenRequest -> AuthToken, with its secret if it was made here
	MethodTokenRevoke = "auth_token_revoke" // AuthTokenRequest, the id alone -> {}
	MethodGrant       = "auth_grant"        // AuthRight -> AuthRight
	MethodRevoke      = "auth_revoke"       // AuthRight, without the right -> {}
	MethodTrust       = "auth_trust_show"   // AuthTrust, the name alone -> AuthTrust, with its keys
	MethodTrustCreate = "auth_trust_create" // AuthTrust without rules and keys -> AuthTrust
	MethodTrustMap    = "auth_trust_map"    // AuthTrust, the name and rules, which are appended -> AuthTrust
	MethodTrustKeys   = "auth_trust_keys"   // AuthTrust, the name and keys, which replace those before -> AuthTrust
	MethodTrustDelete = "auth_trust_delete" // AuthTrust, the name alone -> {}
)

// AuthIdentity is the identity of the asking connection, and its rights.
type AuthIdentity struct {
	Identity string `json:"identity"`
	Enabled  bool   `json:"on"` // rights count
	// Trust, Subject and ExpiresInMS are of a platform's token or certificate.
	Trust       string `json:"trust,omitempty"`
	Subject     string `json:"subject,omitempty"`
	ExpiresInMS uint64 `json:"expires_in_ms,omitempty"`
	// Rights are the entries of this identity. Programs use them to show possible actions; the
	// server checks each request.
	Rights []AuthRight `json:"rights,omitempty"`
}

// AuthState is the tokens, trusts and rights of the cluster.
type AuthState struct {
	Enabled bool        `json:"on"`
	Tokens  []AuthToken `json:"tokens"` // without secrets: no instance keeps them
	Rights  []AuthRight `json:"rights"`
	Trusts  []AuthTrust `json:"trusts,omitempty"` // without keys, with their ids
}

// AuthToken is a token.
type AuthToken struct {
	ID          string `json:"id"`
	Identity    string `json:"identity"`
	CreatedAtMS uint64 `json:"created_at_ms,omitempty"`
	ExpiresAtMS uint64 `json:"expires_at_ms,omitempty"` // 0: never
	UsedAtMS    uint64 `json:"used_at_ms,omitempty"`    // at most an hour before the last use; 0: none was noted
	Secret      string `json:"secret,omitempty"`        // in the answer that made it only
}

// AuthSwitchRequest turns auth on or off. Turning it on makes the first administrator, with the
// identity and token id admin, unless there is one who may administer everything. The secret is the
// asker's, of at least 16 random bytes: one that was made here, and lost with the answer, would
// lock everybody out.
type AuthSwitchRequest struct {
	Enabled bool   `json:"on"`
	Secret  string `json:"secret,omitempty"`
	Force   bool   `json:"force,omitempty"`  // needed to disable it
	Reason  string `json:"reason,omitempty"` // for the records; needed with Force
}

// AuthTokenRequest names a token: up to 64 bytes of text for the id, which is made up if it is
// empty, and up to 255 for the identity.
//
// With an id and a hash the request may be sent again: a token that is there with both, and with
// the identity, is answered like a new one.
type AuthTokenRequest struct {
	ID       string `json:"id,omitempty"`
	Identity string `json:"identity,omitempty"`
	Hash     []byte `json:"hash,omitempty"` // SHA-256 of the secret, which has at least 16 random bytes

	ExpiresAtMS uint64 `json:"expires_at_ms,omitempty"` // by the instances' clocks, since 1970; 0: never
}

// AuthRight is the right of an identity at a path and below it, unless an entry for a longer path
// differs.
type AuthRight struct {
	Path     string `json:"path"`     // "/" is everything
	Identity string `json:"identity"` // of a token; cert:NAME for a certificate's common name; anonymous for who shows nothing
	// read, use, which has read, or admin, which has both; none takes away the rights of a shorter
	// path
	Right string `json:"right,omitempty"`
}

// AuthTrust says whose signed tokens count as credentials, and which identities their subjects
// have. The name has up to 64 bytes of text, issuer and audience up to 1,024.
type AuthTrust struct {
	Name     string          `json:"name"`
	Issuer   string          `json:"issuer,omitempty"`
	SPIFFE   string          `json:"spiffe,omitempty"` // trust domain of subjects, of certificates too
	Audience string          `json:"audience,omitempty"`
	Rules    []AuthTrustRule `json:"rules,omitempty"` // the first that matches counts
	// Keys is the text of a JSON Web Key Set with up to 32 keys, of up to 64 KiB, of which those
	// are kept that can sign tokens.
	Keys      string `json:"keys,omitempty"`
	KeysGiven bool   `json:"keys_given,omitempty"` // by an operator: they are not fetched
	// CA is PEM of the authorities of the issuer's certificate; empty: those of the instances'
	// systems.
	CA         string `json:"ca,omitempty"`
	BearerFile string `json:"bearer_file,omitempty"` // on the instances, with a token for the issuer
	// Replace has a creation change the trust if there is one: it is then as this is, with its
	// rules. It keeps its keys unless its issuer is another one.
	Replace bool `json:"replace,omitempty"`
	// Problem is the reason why the keys of a new trust could not be fetched yet.
	Problem     string         `json:"problem,omitempty"`
	KeyIDs      []AuthTrustKey `json:"key_ids,omitempty"`
	KeysAtMS    uint64         `json:"keys_at_ms,omitempty"` // when the keys came; 0: there are none yet
	CreatedAtMS uint64         `json:"created_at_ms,omitempty"`
}

// AuthTrustKey names a key that counts.
type AuthTrustKey struct {
	ID   string `json:"id"`
	Type string `json:"type"` // such as P-256
}

// AuthTrustRule gives a token that meets all conditions, of which there are 1 to 16, an identity.
type AuthTrustRule struct {
	If []AuthTrustCondition `json:"if"`
	As string               `json:"as"` // {claim} stands for the value of a claim
}

// String returns the rule as auth trust ls shows it: its conditions and the identity.
func (r AuthTrustRule) String() string {
	text := ""
	for _, c := range r.If {
		text += c.Claim + "=" + c.Pattern + " "
	}
	return text + "-> " + r.As
}

// AuthTrustCondition is a pattern for a claim: * stands for any run of characters. a.b is the claim
// b inside the object a; of a list one element has to match.
type AuthTrustCondition struct {
	Claim   string `json:"claim"`
	Pattern string `json:"pattern"`
}
