//go:build invariants

package shard

// invariants makes every Apply check the whole state.
const invariants = true
