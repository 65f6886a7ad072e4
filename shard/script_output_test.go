package shard

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (x *scriptRunner) sessionName(id uint64) string {
	best := ""
	for name, a := range x.sessions {
		if a.id == id && (best == "" || name < best) {
			best = name
		}
	}
	if best == "" {
		return fmt.Sprintf("session %d", id)
	}
	return best
}

func stateWord(s protocol.AcquireState) string {
	switch s {
	case protocol.Acquired:
		return "acquired"
	case protocol.NotAcquired:
		return "not acquired"
	case protocol.Queued:
		return "queued"
	}
	return "no state"
}

var reasonWords = map[protocol.EndReason]string{
	protocol.EndStopped: "stopped", protocol.EndExpired: "expired", protocol.EndKilled: "killed",
	protocol.EndNodeDropped: "node dropped",
}

// tell prints what left the last Apply.
func (x *scriptRunner) output() string {
	for _, e := range x.out.List {
		if e.Kind == EventReply && e.Status == protocol.StatusOK && e.Session != 0 {
			if name, ok := x.starts[e.Command]; ok {
				x.sessions[name].id, x.sessions[name].epoch = e.Session, e.Epoch
			}
		}
	}
	var b strings.Builder
	for _, e := range x.out.List {
		x.event(&b, &e)
	}
	x.processChanges(&b)
	for _, c := range x.out.SemaphoreChanges {
		fmt.Fprintf(&b, "  change %s: ", shortName(c.Name))
		switch o := c.Owner; c.Kind {
		case protocol.ChangeCreated:
			fmt.Fprintf(&b, "created limit=%s ephemeral=%v version=%d data=%q\n",
				limitWord(c.Limit), c.Ephemeral, c.Version, shortName(c.Data))
		case protocol.ChangeDeleted:
			b.WriteString("deleted\n")
		case protocol.ChangeData:
			fmt.Fprintf(&b, "data=%q version=%d\n", c.Data, c.Version)
		case protocol.ChangeLimit:
			fmt.Fprintf(&b, "limit=%s\n", limitWord(c.Limit))
		case protocol.ChangeOptions:
			b.WriteString("options\n")
		case protocol.ChangeOwnerAdded:
			fmt.Fprintf(&b, "owner added #%d %s count=%s data=%q\n", o.OrderID, x.sessionName(o.Session),
				limitWord(o.Count), shortName(o.Data))
		case protocol.ChangeOwnerChanged:
			fmt.Fprintf(&b, "owner changed #%d %s count=%s data=%q\n", o.OrderID,
				x.sessionName(o.Session), limitWord(o.Count), shortName(o.Data))
		case protocol.ChangeOwnerRemoved:
			fmt.Fprintf(&b, "owner removed #%d %s\n", o.OrderID, x.sessionName(o.Session))
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// shortName keeps long names out of the stories.
func shortName(name []byte) string {
	if len(name) > 60 {
		return fmt.Sprintf("(%d bytes)", len(name))
	}
	return string(name)
}

func limitWord(n uint64) string {
	if n == math.MaxUint64 {
		return "MAX"
	}
	return strconv.FormatUint(n, 10)
}

func (x *scriptRunner) event(b *strings.Builder, e *Event) {
	switch e.Kind {
	case EventReply:
		line := ""
		if e.Command < len(x.lines) {
			line = x.lines[e.Command]
		}
		words := parseScriptArgs(line).words
		if len(words) > 3 {
			words = words[:3]
		}
		fmt.Fprintf(b, "%s -> ", strings.Join(words, " "))
		if e.Status != protocol.StatusOK {
			fmt.Fprintf(b, "%s: %s\n", e.Status.String(), e.Text)
			return
		}
		b.WriteString("OK")
		verb := ""
		if len(words) > 0 {
			verb = words[0]
		}
		switch verb {
		case "join":
			fmt.Fprintf(b, " #%d topology=%d returned=%v again=%v", e.OrderID, e.Result, e.Flag, e.AlreadyMember)
		case "quit":
			fmt.Fprintf(b, " completed=%d", e.Result)
		case "acquire":
			b.WriteString(" " + stateWord(e.State))
			if e.OrderID != 0 {
				fmt.Fprintf(b, " #%d", e.OrderID)
			}
			b.WriteString(grantWord(e.Grant))
		case "instance":
			fmt.Fprintf(b, " incarnation=%d", e.Result)
		case "release":
			fmt.Fprintf(b, " released=%v", e.Flag)
			if e.Result == 1 {
				b.WriteString(" transferred")
			}
		case "force-release":
			fmt.Fprintf(b, " released=%d", e.Result)
		case "update":
			fmt.Fprintf(b, " version=%d", e.Result)
		case "start", "attach":
			fmt.Fprintf(b, " epoch=%d timeout=%d grace=%d", e.Epoch, e.Timeout, e.Grace)
		}
		b.WriteString("\n")
	case EventAcquireResult:
		fmt.Fprintf(b, "  result for %s of request %d on %s: ", x.sessionName(e.Session), e.Seq, e.Name)
		if e.Status != protocol.StatusOK {
			fmt.Fprintf(b, "%s: %s\n", e.Status.String(), e.Text)
			return
		}
		fmt.Fprintf(b, "%s #%d%s\n", stateWord(e.State), e.OrderID, grantWord(e.Grant))
	case EventLeaseLost:
		fmt.Fprintf(b, "  lease of %s on %s #%d lost: %s\n", x.sessionName(e.Session), e.Name, e.OrderID, e.Text)
	case EventLeasePreempted:
		fmt.Fprintf(b, "  lease of %s on %s #%d preempted%s", x.sessionName(e.Session), e.Name, e.OrderID, grantWord(e.Grant))
		if e.Flag {
			b.WriteString(" no more\n")
			return
		}
		fmt.Fprintf(b, " by %s\n", x.sessionName(e.Result))
	case EventSessionAttached:
		fmt.Fprintf(b, "  %s attached epoch=%d timeout=%d\n", x.sessionName(e.Session), e.Epoch, e.Timeout)
	case EventSessionDetached:
		fmt.Fprintf(b, "  %s detached epoch=%d\n", x.sessionName(e.Session), e.Epoch)
	case EventSessionEnded:
		fmt.Fprintf(b, "  %s ended, %s: %s\n", x.sessionName(e.Session), reasonWords[e.Reason], e.Text)
		if x := e.Ending; x.Link != 0 {
			fmt.Fprintf(b, "    its connection was %s, silent=%d stood=%d steady=%v\n", x.Link, x.Silent, x.Stood, x.Steady)
		}
	case EventRemoteHeld:
		fmt.Fprintf(b, "  remote session %s holds or waits here, epoch=%d\n", x.sessionName(e.Session), e.Epoch)
	case EventRemoteIdle:
		fmt.Fprintf(b, "  remote session %s is idle\n", x.sessionName(e.Session))
	case EventTookOver:
		fmt.Fprintf(b, "  took over, term %d repeated take-over %d\n", e.Epoch>>16, e.Epoch&0xffff)
	case EventNodeDropped:
		fmt.Fprintf(b, "  node %d dropped\n", e.Node)
	case EventRefused:
		b.WriteString("  batch refused\n")
	case EventBucketsFrozen, EventBucketsActive, EventBucketsLeft:
		word := map[EventKind]string{EventBucketsFrozen: "frozen", EventBucketsActive: "active",
			EventBucketsLeft: "left"}[e.Kind]
		fmt.Fprintf(b, "  %d buckets %s, epoch %d\n", e.Count, word, e.Epoch)
	case EventLimitDeleted:
		fmt.Fprintf(b, "  rate limit %s is deleted\n", e.Name)
	case EventProcess:
		x.round(b, e)
	default:
		fmt.Fprintf(b, "  event %d\n", e.Kind)
	}
}
