package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

func overText(err error, session string) string {
	switch {
	case err != nil:
		return err.Error()
	case session == "not held":
		return "not to be relied on"
	}
	return "held"
}

func sortedNames(m map[string]*scriptCall) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// came is what the engine asks for since the last time.
func (s *script) came() (lines []string) {
	var r Ready
	s.e.Take(&r)
	s.err = cmp.Or(s.err, s.account.check(s.e, r.Done))
	for _, c := range r.Dial {
		s.dialed = append(s.dialed, c)
		s.out = append(s.out, "dial "+strings.Join(c.Addresses, " "))
	}
	for _, name := range s.order {
		if c := s.conns[name]; c != nil && slices.Contains(r.Flush, c) {
			s.frames(name, c.TakeOut(nil))
		}
	}
	for _, n := range r.Notice {
		s.out = append(s.out, "notice: "+noticeText(n))
	}
	for _, c := range r.Close {
		s.out = append(s.out, fmt.Sprintf("close %d: %v", c.instance, c.Err))
	}
	for _, x := range r.Done {
		c, ok := x.Waiter.(*scriptCall)
		switch {
		case !ok:
		case x.Err != nil:
			s.out = append(s.out, fmt.Sprintf("%s: %v%s", c.name, x.Err, resultText(x.Result)))
		case x == &c.release.Request:
			s.out = append(s.out, c.name+": released")
		case x == &c.change.Request:
			s.out = append(s.out, fmt.Sprintf("%s: changed, count %d, data %q", c.name, c.lease.count, c.lease.data))
		case x == &c.wait.Request:
			s.out = append(s.out, c.name+": goes on")
		case x == &c.call.Request:
			s.out = append(s.out, c.name+": OK")
		case x == &c.close.Request:
			s.out = append(s.out, "close: closed")
		case c.name == "start":
			s.out = append(s.out, fmt.Sprintf("start: session %d", s.s.ID))
		case c.name == "another":
			s.out = append(s.out, fmt.Sprintf("start: session %d", s.other.ID))
		default:
			text := fmt.Sprintf("%s: token %d", c.name, c.lease.Token)
			if len(c.lease.Slots) > 0 {
				text += fmt.Sprintf(", slots %v", c.lease.Slots)
			}
			s.out = append(s.out, text)
		}
	}
	for _, p := range r.Process {
		if p.Round != nil {
			s.out = append(s.out, fmt.Sprintf("round %d of %s", p.Round.Epoch, p.Round.Name))
		} else {
			s.out = append(s.out, fmt.Sprintf("message of %s", p.Message.Name))
		}
	}
	for _, w := range r.Wake {
		w.Done()
	}
	for _, v := range r.Event {
		switch v.Kind {
		case SessionChanged:
			s.out = append(s.out, s.whose(v.Session.ID)+"session is "+v.Session.machine.State().String())
		case LeaseEnded:
			s.out = append(s.out, fmt.Sprintf("lease %d: %v", v.Lease.Token, v.Err))
		case LeaseEnding:
			s.out = append(s.out, fmt.Sprintf("lease %d ends soon", v.Lease.Token))
		case LeasePreempted:
			s.out = append(s.out, fmt.Sprintf("lease %d is preempted", v.Lease.Token))
		case ReleaseRefused:
			s.out = append(s.out, fmt.Sprintf("refused in the background: %v", v.Err))
		}
	}
	lines, s.out = s.out, nil
	return lines
}

func resultText(r Result) string {
	switch {
	case r.Unknown && r.InBackground:
		return " (outcome unknown, goes on in the background)"
	case r.Unknown:
		return " (outcome unknown)"
	case r.InBackground:
		return " (goes on in the background)"
	}
	return ""
}

// frames shows what goes to an instance, and notes the ids of the requests.
func (s *script) frames(to string, b []byte) {
	for len(b) > 0 {
		frame, n, _ := protocol.SplitFrame(b, protocol.MaxFrameLen)
		b = b[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		text, name := "", ""
		switch h.Kind {
		case protocol.KindMap:
			text, name = "map", "map"
		case protocol.KindNodeDescribe:
			text, name = "describe node", "describe"
		case protocol.KindSessionStart:
			var m protocol.SessionStart
			_ = protocol.DecodeBody(&m, h.Body)
			text, name = fmt.Sprintf("session start %d", m.CreateID[0]), "start"
			if m.Path == "" {
				text += fmt.Sprintf(" node=%d timeout=%dms", m.Node, m.Timeout)
			}
		case protocol.KindSessionAttach:
			var m protocol.SessionAttach
			_ = protocol.DecodeBody(&m, h.Body)
			text, name = fmt.Sprintf("%sattach epoch=%d", s.whose(m.Session), m.Epoch), s.whose(m.Session)+"attach"
			if m.Nonce != 0 {
				text += fmt.Sprintf(" nonce=%d", m.Nonce)
			}
		case protocol.KindSessionStop:
			var m protocol.SessionStop
			_ = protocol.DecodeBody(&m, h.Body)
			text, name = fmt.Sprintf("stop epoch=%d", m.Epoch), "stop"
		case protocol.KindPresentTicket:
			var m protocol.PresentTicket
			_ = protocol.DecodeBody(&m, h.Body)
			text, name = string(m.Ticket), "ticket"
		case protocol.KindPing:
			text = "ping"
		case protocol.KindAcquire:
			var m protocol.Acquire
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("acquire %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
			if m.Count != 1 || len(m.Data) > 0 {
				text += fmt.Sprintf(" count=%d data=%q", m.Count, m.Data)
			}
			if m.Timeout != protocol.Forever {
				text += fmt.Sprintf(" wait=%dms", m.Timeout)
			}
			if o := m.Options; o != nil {
				if o.Priority != 0 || len(o.Names) > 0 {
					text += fmt.Sprintf(" priority=%d slots=%v", o.Priority, o.Names)
				}
				if o.Flags&protocol.KnowsBounds != 0 {
					text += " knows bounds"
				}
				if o.Hold != 0 {
					text += fmt.Sprintf(" hold=%dms", o.Hold)
				}
				if o.Known != 0 {
					text += fmt.Sprintf(" known=%d", o.Known)
				}
			}
		case protocol.KindCreate:
			var m protocol.Create
			_ = protocol.DecodeBody(&m, h.Body)
			text, name = fmt.Sprintf("create %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
		case protocol.KindRelease:
			var m protocol.Release
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("release %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
			switch m.Bound {
			case protocol.HoldMaxHold:
				text += " at=max-hold"
			case protocol.HoldPreempted:
				text += " at=preempted"
			}
		default:
			text, name = watchFrame(&h)
		}
		s.ids[to+"/"+name] = sentRequest{h.Kind, h.ID}
		s.out = append(s.out, to+"> "+text)
	}
}

// noticeText is a notice in a script: what it has.
func noticeText(n Notice) string {
	kinds := map[NoticeKind]string{
		ConnMade: "connection made", ConnFailed: "connection failed", ConnLost: "connection lost",
		SessionAttached: "session attached", SessionDetached: "session detached", SessionOver: "session over",
		RequestRetried: "retry",
	}
	text := []string{kinds[n.Kind]}
	if n.Request != 0 {
		text = append(text, n.Request.String())
	}
	for _, field := range []struct {
		name string
		is   uint64
	}{{"instance", n.Instance}, {"session", n.Session}, {"shard", n.Shard}} {
		if field.is != 0 {
			text = append(text, fmt.Sprintf("%s=%d", field.name, field.is))
		}
	}
	for _, s := range []string{n.Address, n.Node} {
		if s != "" {
			text = append(text, s)
		}
	}
	if n.Err != nil {
		text = append(text, "("+n.Err.Error()+")")
	}
	return strings.Join(text, " ")
}
