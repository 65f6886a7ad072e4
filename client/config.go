package client

import (
	"context"
	"errors"
	"iter"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ConfigValue is a small piece of configuration with a name and a version, of at most 1 MiB: the data of a semaphore.
type ConfigValue struct {
	ConfigReader
	s *Session
}

// ConfigReader is a piece of configuration as seen by those who use it.
type ConfigReader struct {
	n    *Node
	name string
}

// Value is what a configuration says.
type Value struct {
	Exists  bool
	Data    []byte
	Version uint64 // from 1, one more with every change
}

// Config is the configuration with this name on the session's node.
func (s *Session) Config(name string) *ConfigValue {
	return &ConfigValue{ConfigReader: s.node.Config(name), s: s}
}

// Config is the configuration with this name, for reading it.
func (n *Node) Config(name string) ConfigReader { return ConfigReader{n, name} }

// Get reads the configuration; Strict unless ReadConsistency says otherwise. Errors: NotFound when it was never set.
func (c ConfigReader) Get(ctx context.Context, opts ...ReadOption) (Value, error) {
	sem, err := c.n.Describe(ctx, c.name, append([]ReadOption{ReadConsistency(Strict)}, opts...)...)
	if err != nil {
		return Value{}, err
	}
	return Value{Exists: true, Data: sem.Data, Version: sem.Version}, nil
}

// SetOption is an option of Set.
type SetOption func(*setOptions)

type setOptions struct {
	guarded bool
	version uint64
}

// IfVersion makes Set a compare-and-set: the configuration must have this version, or with 0 must not be set yet; else PreconditionFailed.
func IfVersion(version uint64) SetOption {
	return func(o *setOptions) { o.guarded, o.version = true, version }
}

// Set replaces the configuration, which need not exist, and answers its version. Setting the same bytes changes nothing. Errors: PreconditionFailed, BadRequest for
// too much data.
func (c *ConfigValue) Set(ctx context.Context, data []byte, opts ...SetOption) (version uint64, err error) {
	var o setOptions
	for _, f := range opts {
		f(&o)
	}
	for {
		if !o.guarded || o.version > 0 {
			version, err = c.s.Update(ctx, c.name, data, Expected(o.version))
			if !isNotFound(err) {
				return version, err
			}
			if o.guarded {
				return 0, about("set", c.name, protocol.Errorf(protocol.StatusPreconditionFailed, "it does not exist, so it has no version %d", o.version))
			}
		}
		err = c.s.Create(ctx, c.name, 1, data)
		switch {
		case err == nil:
			return 1, nil
		case !errors.Is(err, AlreadyExists):
			return 0, err
		case o.guarded:
			return 0, about("set", c.name, protocol.Errorf(protocol.StatusPreconditionFailed, "it exists already; get its version first"))
		}
	}
}

// Watch tells the value, and then every other one, until ctx ends: also that it does not exist. It resumes by itself; a slow consumer misses values in between, never the
// last. The last pair carries the error that ended it.
func (c ConfigReader) Watch(ctx context.Context) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		var now, told Value
		synced := false
		for ev, err := range c.n.Watch(ctx, c.name) {
			switch {
			case err != nil:
				yield(Value{}, err)
				return
			case ev.Kind == EventDeleted:
				now = Value{}
			case ev.Kind == EventChanged:
				now = Value{Exists: true, Data: ev.Data, Version: ev.Version}
			}
			first := !synced && ev.Kind == EventSynced
			synced = synced || first
			if !first && (!synced || now.Exists == told.Exists && now.Version == told.Version) {
				continue
			}
			told = now
			if !yield(now, nil) {
				return
			}
		}
	}
}
