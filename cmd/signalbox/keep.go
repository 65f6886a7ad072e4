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

// A kept session lives on between commands: a file says how to take it over. The file holds the session's key, so only its owner may read it.

// maxKept is the length of such a file, in bytes.
const maxKept = 1 << 16

// errKeptOver: what the file's session held is lost.
var errKeptOver = errors.New("the kept session is over, and what it held is free; remove the file, or acquire with it anew")

// openKept takes over the session in the file. With fresh set it starts one when there is no file, and in the place of one that is over, and says so.
func (k *call) openKept(path string, fresh bool) (s *client.Session, started bool, err error) {
	opts := []client.SessionOption{client.Timeout(k.ttl), client.Description("kept in " + filepath.Base(path))}
	start := func() (*client.Session, bool, error) {
		c, err := k.client()
		if err != nil {
			return nil, false, err
		}
		s, err := c.Session(k.ctx, k.node, opts...)
		return s, true, err
	}
	if err := file.Regular(path); err != nil {
		return nil, false, usagef("cannot keep a session in --keep: %v", err)
	}
	b, err := file.Read(path, maxKept)
	switch {
	case errors.Is(err, os.ErrNotExist) && fresh:
		return start()
	case err != nil:
		return nil, false, usagef("cannot read the kept session: %v", err)
	}
	var saved client.Saved
	if err := json.Unmarshal(b, &saved); err != nil || saved.Session == 0 {
		return nil, false, usagef("%s does not hold a kept session; remove it, or name another file", path)
	}
	if saved.Node != k.node {
		return nil, false, usagef("%s keeps a session of node %s, not of %s; give --node %s, or another file", path, saved.Node, k.node, saved.Node)
	}
	c, err := k.client()
	if err != nil {
		return nil, false, err
	}
	// What this command's session saves is written before it is restored: a command that is killed leaves a file that is
	// good for the next one, since a saved state can be restored once.
	next := saved
	next.Generation++
	if err := writeKept(path, next); err != nil {
		return nil, false, err
	}
	s, err = c.Restore(k.ctx, saved, opts...)
	switch {
	case errors.Is(err, client.ErrSessionExpired) && fresh:
		return start()
	case errors.Is(err, client.ErrSessionExpired):
		err = &codeError{code: exitLost, err: errKeptOver}
	}
	return s, false, err
}

// writeKept replaces the file.
func writeKept(path string, saved client.Saved) error {
	b, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := file.Write(path, append(b, '\n')); err != nil {
		return fmt.Errorf("cannot keep the session: %w", err)
	}
	return nil
}

// keepSession leaves the session alone. The file of one that was started is written first, and a write that fails ends
// the session. The file of one that was restored is there; it may be a later command's by now.
func (k *call) keepSession(path string, s *client.Session, started bool) error {
	if started {
		if err := writeKept(path, s.Save()); err != nil {
			k.stop(s)
			return err
		}
	}
	k.c.Abandon() // the server keeps it for its timeout, as if this process had died
	return nil
}

func (k *call) acquireKept(path, name string, wait time.Duration, opts []client.AcquireOption) error {
	s, started, err := k.openKept(path, true)
	if err != nil {
		return err
	}
	l, err := k.acquired(s, name, wait, opts...)
	switch {
	case err != nil && started:
		k.stop(s) // it holds nothing
		return err
	case err != nil:
		if k.long.Err() != nil {
			_, _ = s.Release(k.ending(), name) // it waited: what is held already is answered at once
		}
		_ = k.keepSession(path, s, false) // what it held before stays held
		return err
	}
	row := append(grantRow(l), field{"keep", "", path}, field{"timeout_ms", "", millis(s.Timeout().Milliseconds())})
	if err := k.keepSession(path, s, started); err != nil {
		return err
	}
	return k.printer().say(row, "acquired %s with token %d; held for %s unless you run this again or release it", safe(name), l.Token(), s.Timeout())
}

func (k *call) releaseKept(path, name string) error {
	s, _, err := k.openKept(path, false)
	if err != nil {
		return err
	}
	released, err := s.Release(k.ctx, name)
	if err != nil {
		return err
	}
	left := false
	for _, err := range s.List(k.ctx, "", client.OfSession(s.ID()), client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		left = true
		break
	}
	if left {
		err = k.keepSession(path, s, false)
	} else {
		k.stop(s)
		err = os.Remove(path)
	}
	if err != nil {
		return err
	}
	word := "released " + safe(name)
	if !released {
		word = "nothing to release: the kept session neither holds " + safe(name) + " nor waits for it"
	}
	return k.printer().say(row{{"name", "", name}, {"released", "", released}}, "%s", word)
}
