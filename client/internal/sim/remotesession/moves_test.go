package remotesession

// step takes the next step of a bucket's move, and returns its command. A step that finds nothing
// to do is a repeat.
func (m *model) step(s *state, b uint8) command {
	v := &s.moves[b]
	owner := s.owners[b][s.newest[b]]
	var c command
	switch v.phase {
	case moveFreeze:
		c = command{kind: cmdFreeze, bucket: b, at: owner, epoch: v.epoch}
		v.phase = moveImportFirst
	case moveImportFirst:
		c = command{kind: cmdChunk, bucket: b, at: v.to, epoch: v.epoch}
		v.phase = moveImportLast
	case moveImportLast:
		if m.fault == PartialActivates {
			v.phase = moveCommit
			break
		}
		c = command{kind: cmdImport, bucket: b, at: v.to, epoch: v.epoch, data: s.shards[owner].copies[b], attach: s.shards[owner].attach}
		if x := &s.shards[owner]; x.tombstone == 1 || s.local(owner) && x.copies[home].session == ended {
			c.gone = 1
		}
		if b == home {
			c.attach, c.gone = 0, 0
		}
		v.phase = moveCommit
	case moveCommit:
		s.commit(b, v.to, v.epoch)
		// From here on v.to is the former owner, which must drop its copy.
		v.to, v.phase = owner, moveActivate
	case moveActivate:
		c = command{kind: cmdActivate, bucket: b, at: owner, epoch: v.epoch}
		v.phase = moveDrop
	case moveAborted:
		c = command{kind: cmdActivate, bucket: b, at: owner, epoch: v.epoch}
		v.phase = moveDropAborted
	case moveDrop, moveDropAborted:
		c = command{kind: cmdDrop, bucket: b, at: v.to, epoch: v.epoch}
		*v = move{}
	}
	if c.kind != 0 {
		m.apply(s, &c)
	}
	return c
}

func (s *state) commit(b, owner, epoch uint8) {
	s.newest[b]++
	s.owners[b][s.newest[b]], s.epochs[b][s.newest[b]] = owner, epoch
}

// abort aborts a move before it is committed: a new epoch is committed for the owner.
func (m *model) abort(s *state, b uint8) {
	v := &s.moves[b]
	if m.fault == AbortNoEpoch {
		i := s.owners[b][s.newest[b]]
		if x := &s.shards[i].copies[b]; x.state == frozen {
			x.state, x.pending = active, 0
		}
		s.nextEp[b]--
		*v = move{}
		m.updateRecord(s, i)
		return
	}
	s.commit(b, s.owners[b][s.newest[b]], s.nextEp[b])
	v.epoch, v.phase = s.nextEp[b], moveAborted
	s.nextEp[b]++
}

// apply applies a command of a move in a shard's log. It is refused unless its epoch is newer than
// the copy's, or equal where it repeats.
func (m *model) apply(s *state, c *command) {
	x := &s.shards[c.at]
	p := &x.copies[c.bucket]
	known := max(p.epoch, p.pending)
	switch c.kind {
	case cmdFreeze:
		if p.state != active || c.epoch <= known {
			return
		}
		p.state, p.pending = frozen, c.epoch
		if c.bucket == home {
			x.attach = max(x.attach, p.attach)
		}
		m.updateRecord(s, c.at)
		if m.fault == NoDepart && c.bucket == home && x.belief.state == toAsk {
			x.belief.state = assumed
		}
	case cmdChunk:
		if p.state != active && c.epoch > known {
			*p = bucketCopy{state: importing, epoch: c.epoch}
			m.updateRecord(s, c.at)
		}
	case cmdImport:
		if m.fault == NoImportEpoch {
			was := p.state
			*p = c.data
			p.state, p.epoch, p.pending = max(was, active), c.epoch, 0
			if was != active {
				p.state = imported
			}
		} else if p.state == importing && c.epoch == p.epoch {
			*p = c.data
			p.state, p.epoch, p.pending = imported, c.epoch, 0
		} else {
			return
		}
		x.attach, x.tombstone = max(x.attach, c.attach), max(x.tombstone, c.gone)
		m.updateRecord(s, c.at)
	case cmdActivate:
		switch {
		case p.state == imported && (p.epoch == c.epoch || m.fault == NoActivateEpoch):
		case p.state == importing && p.epoch == c.epoch && m.fault == PartialActivates:
		case p.state == frozen && (c.epoch > p.pending || m.fault == NoActivateEpoch):
		case p.state == active && c.epoch > p.epoch:
		default:
			return
		}
		moved := p.state == imported
		p.state, p.epoch, p.pending = active, max(p.epoch, c.epoch), 0
		if m.fault != NoActivateRelease && s.local(c.at) && x.copies[sem].state == active && x.copies[home].session != alive {
			x.copies[sem].held = 0
		}
		if x.tombstone == 1 && x.copies[sem].state == active {
			x.copies[sem].held = 0 // it could not be released while the bucket was not active
		}
		m.updateRecord(s, c.at)
		if m.fault == ImportNotAsked && moved && c.bucket == sem && x.belief.state == toAsk {
			x.belief.state = assumed
		}
	case cmdDrop:
		switch {
		case p.state == frozen && p.pending == c.epoch:
		case (p.state == imported || p.state == importing) && p.epoch < c.epoch:
		case p.state == absent && p.epoch < c.epoch:
		default:
			return
		}
		*p = bucketCopy{epoch: c.epoch}
		m.updateRecord(s, c.at)
	}
}
