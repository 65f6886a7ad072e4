package replica

import (
	"bytes"
	"sync"
)

// slowWriter stops at its first write until it is told to go on.
type slowWriter struct {
	buf     bytes.Buffer
	once    sync.Once
	entered chan struct{}
	goOn    chan struct{}
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.once.Do(func() {
		close(w.entered)
		<-w.goOn
	})
	return w.buf.Write(b)
}
