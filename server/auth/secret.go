package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Bounds of what people bring, in bytes.
const (
	MinSecretLen = 16
	MaxSecretLen = 1024
	MaxIdentity  = 255
)

// The first administrator.
const (
	AdminIdentity = meta.AdminIdentity
	AdminTokenID  = "admin"
)

// HashToken is what the cluster keeps of a token's secret. Secrets are random and long, so one
// round of a hash hides them.
func HashToken(secret []byte) [meta.HashLen]byte { return sha256.Sum256(secret) }

// BindKey has a session's protection key count for the identity that started the session alone: the
// shard is given a hash of both in its place. What is anonymous stays as it is.
func BindKey(key []byte, identity string) {
	if identity == meta.AnonymousIdentity {
		return
	}
	h := sha256.New()
	h.Write([]byte("signalbox session key 1\x00"))
	h.Write(key)
	h.Write([]byte(identity))
	copy(key, h.Sum(nil))
}

// NewSecret makes a token's secret.
func NewSecret() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "sbx_" + hex.EncodeToString(b[:])
}
