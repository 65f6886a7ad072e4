package guests

// step takes the next step of a bucket's move, and returns the command it consisted of. Steps that find nothing to do are repeats.
func (m *model) step(s *state, b uint8) command {
	v := &s.moves[b]
	owner := s.owners[b][s.newest[b]]
	var c command
	switch v.phase {
	case begun:
		c = command{is: cmdFreeze, bucket: b, at: owner, epoch: v.epoch}
		v.phase = isFrozen
	case isFrozen:
		c = command{is: cmdChunk, bucket: b, at: v.to, epoch: v.epoch}
		v.phase = isHalf
	case isHalf:
		if m.fault == PartialActivates {
			v.phase = isThere
			break
		}
		c = command{is: cmdImport, bucket: b, at: v.to, epoch: v.epoch, data: s.shards[owner].copies[b], attach: s.shards[owner].attach}
		if x := &s.shards[owner]; x.tomb == 1 || s.local(owner) && x.copies[home].session == ended {
			c.gone = 1
		}
		if b == home {
			c.attach, c.gone = 0, 0
		}
		v.phase = isThere
	case isThere:
		s.commit(b, v.to, v.epoch)
		// From here on v.to is the former owner, which is to drop its copy.
		v.to, v.phase = owner, committed
	case committed:
		c = command{is: cmdActivate, bucket: b, at: owner, epoch: v.epoch}
		v.phase = activated
	case activated:
		c = command{is: cmdDrop, bucket: b, at: v.to, epoch: v.epoch}
		*v = move{}
	case aborted:
		c = command{is: cmdActivate, bucket: b, at: owner, epoch: v.epoch}
		v.phase = returned
	case returned:
		c = command{is: cmdDrop, bucket: b, at: v.to, epoch: v.epoch}
		*v = move{}
	}
	if c.is != 0 {
		m.apply(s, &c)
	}
	return c
}

func (s *state) commit(b, owner, epoch uint8) {
	s.newest[b]++
	s.owners[b][s.newest[b]], s.epochs[b][s.newest[b]] = owner, epoch
}

// abort gives a move up before it was committed: a new epoch is committed for the owner.
func (m *model) abort(s *state, b uint8) {
	v := &s.moves[b]
	if m.fault == AbortNoEpoch {
		i := s.owners[b][s.newest[b]]
		if x := &s.shards[i].copies[b]; x.is == frozen {
			x.is, x.pending = active, 0
		}
		s.nextEp[b]--
		*v = move{}
		m.record(s, i)
		return
	}
	s.commit(b, s.owners[b][s.newest[b]], s.nextEp[b])
	v.epoch, v.phase = s.nextEp[b], aborted
	s.nextEp[b]++
}

// apply is a command of a move in a shard's log. Each is refused unless its epoch is newer than the copy's, or equal where it repeats.
func (m *model) apply(s *state, c *command) {
	x := &s.shards[c.at]
	p := &x.copies[c.bucket]
	known := max(p.epoch, p.pending)
	switch c.is {
	case cmdFreeze:
		if p.is != active || c.epoch <= known {
			return
		}
		p.is, p.pending = frozen, c.epoch
		if c.bucket == home {
			x.attach = max(x.attach, p.attach)
		}
		m.record(s, c.at)
		if m.fault == NoDepart && c.bucket == home && x.belief.is == toAsk {
			x.belief.is = trusted
		}
	case cmdChunk:
		if p.is != active && c.epoch > known {
			*p = copyOf{is: importing, epoch: c.epoch}
			m.record(s, c.at)
		}
	case cmdImport:
		if m.fault == NoImportEpoch {
			was := p.is
			*p = c.data
			p.is, p.epoch, p.pending = max(was, active), c.epoch, 0
			if was != active {
				p.is = imported
			}
		} else if p.is == importing && c.epoch == p.epoch {
			*p = c.data
			p.is, p.epoch, p.pending = imported, c.epoch, 0
		} else {
			return
		}
		x.attach, x.tomb = max(x.attach, c.attach), max(x.tomb, c.gone)
		m.record(s, c.at)
	case cmdActivate:
		switch {
		case p.is == imported && (p.epoch == c.epoch || m.fault == NoActivateEpoch):
		case p.is == importing && p.epoch == c.epoch && m.fault == PartialActivates:
		case p.is == frozen && (c.epoch > p.pending || m.fault == NoActivateEpoch):
		case p.is == active && c.epoch > p.epoch:
		default:
			return
		}
		moved := p.is == imported
		p.is, p.epoch, p.pending = active, max(p.epoch, c.epoch), 0
		if m.fault != NoActivateRelease && s.local(c.at) && x.copies[sem].is == active && x.copies[home].session != alive {
			x.copies[sem].held = 0
		}
		if x.tomb == 1 && x.copies[sem].is == active {
			x.copies[sem].held = 0 // it could not be released while it was not active
		}
		m.record(s, c.at)
		if m.fault == ImportNotAsked && moved && c.bucket == sem && x.belief.is == toAsk {
			x.belief.is = trusted
		}
	case cmdDrop:
		switch {
		case p.is == frozen && p.pending == c.epoch:
		case (p.is == imported || p.is == importing) && p.epoch < c.epoch:
		case p.is == absent && p.epoch < c.epoch:
		default:
			return
		}
		*p = copyOf{epoch: c.epoch}
		m.record(s, c.at)
	}
}
