package session

import (
	"testing"
	"unsafe"
)

// TestBindingIsSmall: a hundred thousand sessions may be bound on one connection, so a binding has
// the size class below 64 bytes.
func TestBindingIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Binding{}); n > 48 {
		t.Errorf("a binding has %d bytes, more than 48", n)
	}
}
