package process

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// watchStep is a step of a process's stream. One of the two is set.
type watchStep struct {
	State   *protocol.ProcessState // replaces all steps before; complete, not a page
	Changes *protocol.ProcessChanges
	shard   uint64
}

// LogIndex implements core.Indexed.
func (s watchStep) LogIndex() (shard, index uint64) {
	if s.State != nil {
		return s.shard, s.State.Status.Index
	}
	return s.shard, s.Changes.Revision
}

// pageReader decodes the events of one opening of the stream, and puts the pages of a state
// together.
type pageReader struct {
	state *protocol.ProcessState // nil: no first page has come
}

func (p *pageReader) read(h protocol.Header) (event watchStep, step core.Step, err error) {
	event.shard = h.Arg
	body := bytes.Clone(h.Body) // the message keeps it
	if h.Kind == protocol.KindProcessChanges {
		event.Changes = new(protocol.ProcessChanges)
		return event, core.Append, protocol.DecodeBody(event.Changes, body)
	}
	page := new(protocol.ProcessState)
	if err := protocol.DecodeBody(page, body); err != nil {
		return event, core.Partial, err
	}
	switch {
	case page.First:
		p.state = page
	case p.state == nil:
		return event, core.Partial, nil // a page without a first one
	default:
		p.state.Status.Members = append(p.state.Status.Members, page.Status.Members...)
		p.state.Status.History = append(p.state.Status.History, page.Status.History...)
	}
	if !page.Last {
		return event, core.Partial, nil
	}
	event.State, p.state = p.state, nil
	return event, core.Replace, nil
}
