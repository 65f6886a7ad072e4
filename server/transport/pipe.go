package transport

// Pipe is a connection without a socket, for tests: the owner reads bytes into it, and takes its
// output. One goroutine uses it.
type Pipe struct {
	Conn
	cycle Cycle
	batch writeBatch
}

// NewPipe opens a connection from such an address; nil: there are too many.
func (t *Transport) NewPipe(remote string) *Pipe {
	p := &Pipe{cycle: t.cfg.NewCycle()}
	if !p.open(t, p, remote) {
		return nil
	}
	return p
}

func (*Pipe) markDirty(bool) {}

func (*Pipe) hasten()      {}
func (*Pipe) pauseReads()  {}
func (*Pipe) resumeReads() {}

// Read handles every complete frame at the start of b, and answers how many bytes it used. Nothing
// of b is kept.
func (p *Pipe) Read(b []byte) (used int) {
	used = p.read(p.cycle, b)
	p.t.Flush()
	return used
}

// Need is how many bytes must be there before the next frame can be complete.
func (p *Pipe) Need() int { return p.need }

// AppendWritten appends to b the bytes written since the last call.
func (p *Pipe) AppendWritten(b []byte) []byte {
	p.out.take(&p.batch)
	for _, s := range p.batch.segs {
		b = append(b, s...)
	}
	p.batch.release()
	p.setUnsent(0)
	p.checkRoom()
	return b
}

// Disconnect ends the connection.
func (p *Pipe) Disconnect() { p.closed() }
