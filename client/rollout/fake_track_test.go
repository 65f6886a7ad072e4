package rollout_test

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// hostedTrack is a track and who watches it.
type hostedTrack struct {
	*rollout.Track
	watches map[watchKey]*protocol.TrackWatch
	timer   *time.Timer
	steps   uint64
}

// step makes a call to a track, tells those who watch, and sets its timer. mu is held.
func (c *fakeServer) step(h *hostedTrack, call func(*hostedTrack, *rollout.Events) error) error {
	var out rollout.Events
	err := call(h, &out)
	h.steps++
	c.log = append(c.log, out.List...)
	for key, w := range h.watches {
		m := protocol.TrackEvents{Revision: h.steps}
		for i := range out.List {
			if e := &out.List[i]; wanted(w, e) {
				m.Events = append(m.Events, *e)
			}
		}
		if len(m.Events) > 0 {
			key.on.send(protocol.KindTrackEvents, key.id, 1, &m)
		}
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	if at, ok := h.Next(); ok {
		h.timer = time.AfterFunc(time.Duration(at-min(at, c.now().Log))*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.away || len(c.conns) > 0 {
				_ = c.step(h, func(h *hostedTrack, out *rollout.Events) error {
					h.Tick(c.now(), out)
					return nil
				})
			}
		})
	}
	return err
}

// wanted reports whether a watch is told of a change.
func wanted(w *protocol.TrackWatch, c *protocol.TrackEvent) bool {
	if w.Location != "" && c.Location != "" && c.Location != w.Location {
		return false
	}
	return !w.Targets || c.Kind == protocol.TrackEventTarget || c.Kind == protocol.TrackEventWiden ||
		c.Kind == protocol.TrackEventState && c.State == protocol.StateReady
}

// track serves the requests on tracks.
func (l *fakeConn) track(h protocol.Header) {
	request := map[protocol.Kind]protocol.Message{
		protocol.KindTrackCreate: &protocol.TrackCreate{}, protocol.KindTrackAlter: &protocol.TrackAlter{},
		protocol.KindTrackDelete:     &protocol.TrackDelete{},
		protocol.KindTrackRegister:   &protocol.TrackRegister{},
		protocol.KindTrackUnregister: &protocol.TrackUnregister{}, protocol.KindTrackPoll: &protocol.TrackPoll{},
		protocol.KindTrackReport: &protocol.TrackReport{}, protocol.KindTrackSetRole: &protocol.TrackSetRole{},
		protocol.KindTrackPublish:  &protocol.TrackPublish{},
		protocol.KindTrackWithdraw: &protocol.TrackWithdraw{}, protocol.KindTrackAdmin: &protocol.TrackAdmin{},
		protocol.KindTrackGateReport: &protocol.TrackGateReport{},
		protocol.KindTrackAdvance:    &protocol.TrackAdvance{},
		protocol.KindTrackDescribe:   &protocol.TrackDescribe{}, protocol.KindTrackHistory: &protocol.TrackHistory{},
	}[h.Kind]
	if request == nil {
		l.c.t.Errorf("%v came", h.Kind)
		return
	}
	decode(l, h, request)
	if err := protocol.Validate(request); err != nil {
		l.reply(h, nil, err)
		return
	}
	reply, err := l.apply(request)
	l.reply(h, reply, err)
}

// caller is who makes a call. mu is held.
func (l *fakeConn) caller(session uint64, id string, incarnation uint64) (rollout.Caller, error) {
	if l.c.sessions[session] != l {
		return rollout.Caller{}, protocol.Errorf(protocol.StatusBadSession, "it is not attached here")
	}
	return rollout.Caller{Session: session, ID: id, Incarnation: incarnation}, nil
}

// of finds a track. mu is held.
func (c *fakeServer) of(name []byte) (*hostedTrack, error) {
	if t := c.tracks[string(name)]; t != nil {
		return t, nil
	}
	return nil, errNoTrack
}

// on makes a call to a track of this name. mu is held.
func (c *fakeServer) on(name []byte, call func(*hostedTrack, *rollout.Events) error) error {
	t, err := c.of(name)
	if err != nil {
		return err
	}
	return c.step(t, call)
}

// answered is what a numbered request was answered, which a repeat gets again.
type answered struct {
	m   protocol.Message
	err error
}

// numbered applies a request of a session at most once. mu is held.
func (l *fakeConn) numbered(head protocol.Head, apply func() (protocol.Message, error)) (protocol.Message, error) {
	if l.c.sessions[head.Session] != l {
		return nil, protocol.Errorf(protocol.StatusBadSession, "it is not attached here")
	}
	head.Low = 0
	if a, ok := l.c.answers[head].(answered); ok {
		return a.m, a.err
	}
	m, err := apply()
	l.c.answers[head] = answered{m, err}
	return m, err
}

// apply serves a request on a track as it came. mu is held.
func (l *fakeConn) apply(request protocol.Message) (protocol.Message, error) {
	c, empty := l.c, &protocol.Empty{}
	switch m := request.(type) {
	case *protocol.TrackCreate:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			if c.tracks[string(m.Name)] != nil {
				return nil, protocol.Errorf(protocol.StatusAlreadyExists, "there is such a track")
			}
			var out rollout.Events
			t, err := rollout.New(c.now(), m.Config, &out)
			if err != nil {
				return nil, err
			}
			c.log = append(c.log, out.List...)
			c.tracks[string(m.Name)] = &hostedTrack{Track: t, watches: map[watchKey]*protocol.TrackWatch{}}
			return &protocol.TrackRevision{Revision: t.Revision()}, nil
		})
	case *protocol.TrackAlter:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			reply := &protocol.TrackRevision{}
			return reply, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
				err := h.Configure(c.now(), m.Revision, m.Config, out)
				reply.Revision = h.Revision()
				return err
			})
		})
	case *protocol.TrackDelete:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			t, err := c.of(m.Name)
			if err != nil {
				return nil, err
			}
			if t.NumInstances() > 0 && !m.Force {
				return nil, protocol.Errorf(protocol.StatusPreconditionFailed, "the track has instances")
			}
			for key := range t.watches {
				key.on.send(protocol.KindStreamCut, key.id, 1,
					&protocol.StreamCut{Status: protocol.StatusNotFound, Message: "the track is deleted"})
			}
			if t.timer != nil {
				t.timer.Stop()
			}
			delete(c.tracks, string(m.Name))
			return empty, nil
		})
	case *protocol.TrackRegister:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			reply := &protocol.TrackRegisterReply{}
			return reply, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) (err error) {
				at, live := c.sessions[h.SessionOf(m.ID)]
				reply.Incarnation, err = h.Register(c.now(), rollout.Registration{
					Session: m.Session, ID: m.ID, Location: m.Location, Role: m.Role, Meta: m.Meta,
					Takeover: m.Takeover || live && at == nil,
				}, out)
				return err
			})
		})
	case *protocol.TrackUnregister:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
				return h.Unregister(c.now(), rollout.Caller{Session: m.Session, ID: m.ID, Incarnation: m.Incarnation}, out)
			})
		})
	case *protocol.TrackSetRole:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
				return h.SetRole(c.now(), rollout.Caller{Session: m.Session, ID: m.ID, Incarnation: m.Incarnation}, m.Role, out)
			})
		})
	case *protocol.TrackPoll:
		c.polls++
		caller, err := l.caller(m.Session, m.ID, m.Incarnation)
		if err != nil {
			return nil, err
		}
		var reply protocol.TrackPollReply
		return &reply, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
			a, err := h.Poll(c.now(), caller, &m.Report, out)
			reply = a
			if m.WithPayload {
				reply.Payload, reply.HasPayload = h.Payload(a.Version)
			}
			return err
		})
	case *protocol.TrackReport:
		caller, err := l.caller(m.Session, m.ID, m.Incarnation)
		if err != nil {
			return nil, err
		}
		return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
			return h.Report(c.now(), caller, m.Report, out)
		})
	case *protocol.TrackPublish:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			reply := &protocol.TrackVersion{}
			return reply, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) (err error) {
				reply.Version, err = h.Publish(c.now(), m.Version, m.Payload, out)
				return err
			})
		})
	case *protocol.TrackWithdraw:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error { return h.Withdraw(c.now(), m.Version, out) })
		})
	case *protocol.TrackAdmin:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error { return h.Operate(c.now(), m, out) })
		})
	case *protocol.TrackGateReport:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
				return h.ReportGate(c.now(), m.Location, m.Version, m.Gate, m.Attempt, m.Outcome, m.Text, out)
			})
		})
	case *protocol.TrackAdvance:
		return l.numbered(m.Head, func() (protocol.Message, error) {
			return empty, c.on(m.Name, func(h *hostedTrack, out *rollout.Events) error {
				if m.Version == 0 {
					return h.SourceFailed(c.now(), m.Expected, m.Text, out)
				}
				return h.Advance(c.now(), m.Expected, m.Version, out)
			})
		})
	case *protocol.TrackDescribe:
		return c.describe(m)
	case *protocol.TrackHistory:
		t, err := c.of(m.Name)
		if err != nil {
			return nil, err
		}
		rows, err := t.History(m.Location)
		return &protocol.TrackHistoryReply{Clock: c.now().Log, Rows: rows}, err
	}
	c.t.Errorf("%T is not served", request)
	return nil, protocol.Errorf(protocol.StatusUnsupported, "not served")
}

// describe has pages of two instances.
func (c *fakeServer) describe(m *protocol.TrackDescribe) (protocol.Message, error) {
	t, err := c.of(m.Name)
	if err != nil {
		return nil, err
	}
	w := t.Describe(c.now())
	w.Name = m.Name
	if m.Flags&protocol.WithTrackConfig != 0 {
		w.Config = t.Config()
	}
	if m.Flags&protocol.WithTrackInstances != 0 {
		for _, id := range t.InstancesAfter(string(m.Cursor), 2) {
			p, err := t.Instance(id)
			if err != nil {
				return nil, err
			}
			w.Instances = append(w.Instances, p)
			w.Cursor = []byte(id)
		}
		if len(w.Instances) < 2 {
			w.Cursor = nil
		}
	}
	return &w, nil
}
