package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/file"
)

// A saved session outlives its command. The file has all that a command needs to take the session
// over, its key included, so only its owner may read it.

const maxSessionFile = 1 << 16

// savedSession is the content of the file. A file of an older version has no timeout.
type savedSession struct {
	client.Saved
	TimeoutMs int64 `json:"timeout_ms,omitempty"`
}

// errSavedSessionOver: the leases of the file's session are lost.
var errSavedSessionOver = errors.New(
	"the saved session is over, and what it held is free; remove the file, or acquire with it again")

// openSavedSession takes over the session in the file. With fresh set it starts a session, and
// reports that, if there is no file or the session has ended. The session keeps the timeout that it
// was saved with, unless the flag --session-timeout gives another one.
func (inv *invocation) openSavedSession(path string, fresh bool) (s *client.Session, started bool, err error) {
	opts := func() []client.SessionOption {
		return []client.SessionOption{client.Timeout(inv.ttl), client.Description("saved in " + filepath.Base(path))}
	}
	start := func() (*client.Session, bool, error) {
		c, err := inv.client()
		if err != nil {
			return nil, false, err
		}
		s, err := c.Session(inv.ctx, inv.node, opts()...)
		return s, true, err
	}
	if err := file.CheckRegular(path); err != nil {
		return nil, false, usagef("cannot save a session in --session-file: %v", err)
	}
	b, err := file.Read(path, maxSessionFile)
	switch {
	case errors.Is(err, os.ErrNotExist) && fresh:
		return start()
	case err != nil:
		return nil, false, usagef("cannot read the saved session: %v", err)
	}
	var saved savedSession
	if err := json.Unmarshal(b, &saved); err != nil || saved.Session == 0 {
		return nil, false, usagef("%s does not hold a saved session; remove it, or name another file", path)
	}
	if saved.Node != inv.node {
		return nil, false, usagef("%s has a session of node %s, not of %s; give --node %s, or another file",
			path, saved.Node, inv.node, saved.Node)
	}
	if saved.TimeoutMs > 0 && !inv.ttlGiven {
		inv.ttl = time.Duration(saved.TimeoutMs) * time.Millisecond
	}
	c, err := inv.client()
	if err != nil {
		return nil, false, err
	}
	// The file is written before the session is restored, because a saved state can be restored
	// only once. So a command that is killed leaves a file that the next one can use.
	next := saved.Saved
	next.Generation++
	next.Version = max(next.Version, client.SavedVersion) // a later one stays unreadable here
	if err := inv.writeSessionFile(path, next); err != nil {
		return nil, false, err
	}
	s, err = c.Restore(inv.ctx, saved.Saved, opts()...)
	switch {
	case errors.Is(err, client.ErrSessionExpired) && fresh:
		return start()
	case errors.Is(err, client.ErrSessionExpired):
		err = &codeError{code: exitLost, err: errSavedSessionOver}
	}
	return s, false, err
}

func (inv *invocation) writeSessionFile(path string, saved client.Saved) error {
	b, err := json.Marshal(savedSession{saved, inv.ttl.Milliseconds()})
	if err != nil {
		return err
	}
	if err := file.Write(path, append(b, '\n')); err != nil {
		return fmt.Errorf("cannot save the session: %w", err)
	}
	return nil
}

// saveSession leaves the session to the next command. It writes the file of a new session; if that
// fails, it ends the session. The file of a restored session is written already, and may be a later
// command's.
func (inv *invocation) saveSession(path string, s *client.Session, started bool) error {
	if started {
		if err := inv.writeSessionFile(path, s.Save()); err != nil {
			inv.closeSession(s)
			return err
		}
	}
	inv.conn.CloseWithoutRelease() // the server keeps it for its timeout, as if this process had died
	return nil
}

// acquireWithFile acquires with the session of a file, and saves the session there.
func (inv *invocation) acquireWithFile(path string, h holdArgs, acquire acquireFunc) error {
	s, started, err := inv.openSavedSession(path, true)
	if err != nil {
		return err
	}
	left := false
	l, err := inv.acquire(s, h, func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
		l, err := acquire(s, opts...)
		left = errors.Is(err, client.ErrDeadlock) || inv.longCtx.Err() != nil
		return l, err
	})
	switch {
	case err != nil && started:
		inv.closeSession(s) // it holds nothing
		return err
	case err != nil:
		if left { // as said so far by this process alone
			_, _ = s.Release(inv.cleanup(), h.name) // it waited, so the session did not hold the name before
		}
		_ = inv.saveSession(path, s, false) // its earlier leases stay
		return err
	}
	row := append(grantRow(l, "acquired"), field{"session_file", "", path}, field{"timeout_ms", "", ms(s.Timeout())})
	held, unless := heldFor(l), "you run this again or"
	if held < s.Timeout() {
		unless, row = "you", append(row, field{"left_ms", "", ms(held)})
	}
	err = inv.saveSession(path, s, started)
	return inv.report(err, row, "acquired %s with token %d; held for %s unless %s release it", h.name, l.Token(), held,
		unless)
}

func (inv *invocation) releaseWithFile(path, name string) error {
	s, _, err := inv.openSavedSession(path, false)
	if err != nil {
		return err
	}
	released, err := s.Release(inv.ctx, name)
	if err != nil {
		return err
	}
	if err := inv.leaveSaved(path, s); err != nil {
		return err
	}
	if released {
		return inv.printer().message(row{{"name", "", name}, {"released", "", true}}, "released %s", name)
	}
	if err := inv.printer().message(row{{"name", "", name}, {"released", "", false}},
		"nothing to release: the saved session neither holds %s nor waits for it; its hold may have ended before",
		name); err != nil {
		return err
	}
	return &codeError{code: exitLost, quiet: true}
}

// transferWithFile transfers a lease of a file's session.
func (inv *invocation) transferWithFile(path, name string, to uint64) error {
	s, _, err := inv.openSavedSession(path, false)
	if err != nil {
		return err
	}
	err = s.TransferTo(inv.ctx, name, to)
	if left := inv.leaveSaved(path, s); err == nil {
		err = left
	}
	if err != nil {
		return err
	}
	return inv.printer().message(row{{"name", "", name}, {"session_id", "", sessionID(to)}},
		"handed %s over to session %d", name, to)
}

// leaveSaved leaves a saved session to the next command, or ends it when it has nothing any more.
func (inv *invocation) leaveSaved(path string, s *client.Session) error {
	left := false
	for _, err := range s.Node().List(inv.ctx, "", client.OfSession(s.ID()), client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		left = true
		break
	}
	if left {
		return inv.saveSession(path, s, false)
	}
	inv.closeSession(s)
	return os.Remove(path)
}
