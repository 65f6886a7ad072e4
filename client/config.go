package client

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ConfigValue is a small piece of configuration with a name, a version and its last values. It is
// stored in the data of a semaphore whose name begins with ConfigPrefix.
type ConfigValue struct {
	ConfigReader
	s *Session
}

// ConfigReader reads and watches a configuration.
type ConfigReader struct {
	n    *Node
	name string
}

// Value is a present or past value of a configuration.
type Value struct {
	Exists  bool
	Data    []byte
	Version uint64    // rises with every change and never repeats for a name, see IfVersion
	Time    time.Time // when it was set, by the clock of the client that did; for people
	// Author is who set it, as that client says, for people: its identity, or without
	// authentication its session's description.
	Author string
	Reason string // for which it was set, as far as the first 256 bytes; may be empty
}

// ConfigInfo is a configuration in a list.
type ConfigInfo struct {
	Name    string
	Version uint64
}

func (c ConfigReader) semaphore() string { return ConfigPrefix + c.name }

// check refuses an empty name: the prefix alone would be a name.
func (c ConfigReader) check() error {
	if c.name == "" {
		return protocol.Errorf(protocol.StatusBadRequest, "the configuration's name is empty; give it one")
	}
	return nil
}

// Get reads the configuration, Strict unless ReadConsistency says otherwise. Errors: ErrNotFound if
// it was never set.
func (c ConfigReader) Get(ctx context.Context, opts ...ReadOption) (Value, error) {
	values, err := c.History(ctx, opts...)
	if err != nil {
		return Value{}, err
	}
	return values[0], nil
}

// History reads the configuration and the values before it, newest first: up to 10, while they have
// at most 64 KiB together. Delete removes them. Strict unless ReadConsistency says otherwise.
// Errors: ErrNotFound if it was never set.
func (c ConfigReader) History(ctx context.Context, opts ...ReadOption) ([]Value, error) {
	values, err := c.read(ctx, opts)
	return values, withOp("read configuration", c.name, err)
}

func (c ConfigReader) read(ctx context.Context, opts []ReadOption) (values []Value, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if _, err := readOptionsOf(opts, configOptions); err != nil {
		return nil, err
	}
	sem, err := c.n.describe(ctx, c.semaphore(), append([]ReadOption{ReadConsistency(Strict)}, opts...)...)
	if isNotFound(err) && answered(err) {
		err = errNotSet
	}
	if err == nil {
		values, err = readConfig(sem.Data, sem.Version)
	}
	return values, err
}

// Set replaces the configuration, which need not exist, and returns its version. Setting the same
// bytes changes nothing. Errors: ErrPreconditionFailed; ErrBadRequest for more than MaxConfigLen
// bytes.
func (c *ConfigValue) Set(ctx context.Context, data []byte, opts ...WriteOption) (version uint64, err error) {
	version, err = c.set(ctx, data, opts)
	return version, withOp("set configuration", c.name, err)
}

func (c *ConfigValue) set(ctx context.Context, data []byte, opts []WriteOption) (version uint64, err error) {
	o := writeOptionsOf(opts)
	if len(data) > MaxConfigLen {
		return 0, protocol.Errorf(protocol.StatusBadRequest,
			"the value is %d bytes long; at most %d are allowed", len(data), MaxConfigLen)
	}
	author := c.author(ctx)
	var before Value
	var refused error // by the state that before was a part of
	for {
		values, err := c.read(ctx, nil)
		if err != nil && (!isNotFound(err) || !answered(err)) {
			return 0, err
		}
		now := Value{}
		if err == nil {
			now = values[0]
		}
		switch {
		case refused != nil && now.Exists == before.Exists && now.Version == before.Version:
			return 0, refused // unchanged since it was read, so a quota of the node refuses it
		case o.guarded && now.Version != o.version && !now.Exists:
			return 0, protocol.Errorf(protocol.StatusPreconditionFailed,
				"it is not set, so it has no version %d", o.version)
		case o.guarded && now.Version != o.version:
			return 0, errOtherVersion(now.Version, o.version)
		case now.Exists && bytes.Equal(now.Data, data):
			return now.Version, nil
		}
		next := appendConfig(append([]Value{{Time: time.Now(), Author: author, Reason: clip(o.reason), Data: data}}, values...))
		if !now.Exists {
			version, err = c.s.create(ctx, c.semaphore(), 1, next, Reason(o.reason))
		} else {
			version, err = c.s.update(ctx, c.semaphore(), next, IfVersion(now.Version), Reason(o.reason))
		}
		refused = nil
		switch {
		case err == nil:
			return version, nil
		case !answered(err):
			return 0, err
		case errors.Is(err, ErrPreconditionFailed):
			before, refused = now, err
		case !errors.Is(err, ErrAlreadyExists) && !isNotFound(err):
			return 0, err
		} // another writer may have been faster: read again and decide
	}
}

var errNotSet = protocol.Refuse(protocol.RefusalNoSemaphore, "it is not set")

func errOtherVersion(now, expected uint64) error {
	return protocol.Refuse(protocol.RefusalOtherVersion, "it has version %d, not %d; get it again", now, expected)
}

// author is who sets a value.
func (c *ConfigValue) author(ctx context.Context) string {
	who := c.s.d.Description
	if info, err := c.s.node.c.ServerInfo(ctx); err == nil && info.Identity != anonymous {
		who = info.Identity
	}
	return clip(who)
}

// clip is as much of a text as a value's author or reason may have.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxAuthorLen)], "") }

// anonymous is the identity of a client without credentials.
const anonymous = "anonymous"

// Rollback sets the configuration to the value that it had at a version of its history, and returns
// the new version. A change by somebody else meanwhile is an error. Errors: ErrNotFound if the
// version is not in the history; ErrPreconditionFailed.
func (c *ConfigValue) Rollback(ctx context.Context, to uint64, opts ...WriteOption) (version uint64, err error) {
	const op = "roll back configuration"
	values, err := c.read(ctx, nil)
	if err != nil {
		return 0, withOp(op, c.name, err)
	}
	now := values[0].Version
	if o := writeOptionsOf(opts); o.guarded && o.version != now {
		return 0, withOp(op, c.name, errOtherVersion(now, o.version))
	}
	for i := range values {
		if values[i].Version == to {
			version, err = c.set(ctx, values[i].Data, append(opts[:len(opts):len(opts)], IfVersion(now)))
			return version, withOp(op, c.name, err)
		}
	}
	return 0, withOp(op, c.name, protocol.Errorf(protocol.StatusNotFound,
		"version %d is not in its history; the oldest one there is %d", to, values[len(values)-1].Version))
}

// Delete removes the configuration and its history. Errors: ErrNotFound if it is not set;
// ErrPreconditionFailed.
func (c *ConfigValue) Delete(ctx context.Context, opts ...WriteOption) error {
	const op = "delete configuration"
	if err := c.check(); err != nil {
		return withOp(op, c.name, err)
	}
	err := c.s.delete(ctx, c.semaphore(), false, opts)
	if isNotFound(err) && answered(err) {
		err = errNotSet
	}
	return withOp(op, c.name, err)
}

// Watch yields the value and then every other value, until ctx ends, including that it does not
// exist. It resumes by itself. A slow consumer misses values in between, never the last. The last
// pair carries the error that ended it.
func (c ConfigReader) Watch(ctx context.Context) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		const op = "watch configuration"
		if err := c.check(); err != nil {
			yield(Value{}, withOp(op, c.name, err))
			return
		}
		var now, yielded Value
		synced := false
		for ev, err := range c.n.Watch(ctx, c.semaphore()) {
			switch {
			case err != nil:
				yield(Value{}, err)
				return
			case ev.Kind == EventDeleted:
				now = Value{}
			case ev.Kind == EventChanged:
				values, err := readConfig(ev.Data, ev.Version)
				if err != nil {
					yield(Value{}, withOp(op, c.name, err))
					return
				}
				now = values[0]
			}
			first := !synced && ev.Kind == EventSynced
			synced = synced || first
			if !first && (!synced || now.Version == yielded.Version) {
				continue
			}
			yielded = now
			if !yield(now, nil) {
				return
			}
		}
	}
}
