package server

import "testing"

func TestRoomFor(t *testing.T) {
	for _, c := range []struct {
		files, connections uint64
		ok                 bool
	}{{64, 0, false}, {127, 0, false}, {128, 64, true}, {256, 128, true}, {1024, 512, true}, {4096, 3584, true},
		{1 << 20, 1<<20 - 512, true}} {
		n, ok := roomFor(c.files)
		if ok != c.ok || ok && n != c.connections {
			t.Errorf("roomFor(%d) = %d, %v", c.files, n, ok)
		}
	}
}
