package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// AuditLog is the end of the audit logs of a cluster's instances.
type AuditLog struct {
	Instances []AuditInstance
	Events    []AuditEvent // the newest first
}

// AuditInstance is an instance whose audit log was asked for.
type AuditInstance struct {
	ID   uint64
	Name string
	Err  error // why its events are missing. ErrNotFound: it writes no audit log
}

// AuditEvent is a line of an audit log.
type AuditEvent struct {
	ID        string    // unique: instance, start of the instance, count since the start
	Instance  string    // name of the instance whose log has it; one of them, if several logs have it
	Time      time.Time // by that instance's clock
	Title     string    // a constant word, such as ask_kill_session
	Message   string
	Severity  string       // low, medium or high
	Initiator string       // an identity; cluster for what the cluster does by itself
	Fields    []AuditField // in the order of the log
}

// AuditField is a further member of an event. Value is text; what is not text in the log is JSON
// here.
type AuditField struct{ Key, Value string }

// MaxAuditLines is how many events AuditLog may be asked for.
const MaxAuditLines = protocol.MaxAuditLines

// auditTimeout is how long one instance has to answer AuditLog: one that is down must not hold up
// the others.
const auditTimeout = time.Second

// AuditLog reads the last lines of the audit log of each instance, 1 to MaxAuditLines or 0 for
// 100, and returns at most as many events, the newest first. Lines before the last 256 KiB
// of a log are not read. A change of the cluster that several logs have is one event. Times are by
// the instances' own clocks. It needs the right admin on "/".
//
// An instance that does not answer within a second has Err, and so has one that writes no audit log
// (ErrNotFound), or writes it to something else than a file (ErrPreconditionFailed). Errors:
// ErrForbidden; otherwise the first of an instance, if none of them answered.
func (a *Client) AuditLog(ctx context.Context, lines int) (*AuditLog, error) {
	lines = cmp.Or(lines, protocol.DefaultAuditLines)
	m, err := a.Map(ctx)
	if err != nil {
		return nil, err
	}
	why := fmt.Errorf("%w: no answer within %s", client.ErrUnreachable, auditTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, auditTimeout, why)
	defer cancel()
	answers := make([]protocol.AuditLog, len(m.Instances))
	out := &AuditLog{Instances: make([]AuditInstance, len(m.Instances))}
	var asked sync.WaitGroup
	for i, x := range m.Instances {
		out.Instances[i] = AuditInstance{ID: x.ID, Name: x.Name}
		asked.Go(func() {
			req := protocol.AuditLogRequest{Lines: lines}
			out.Instances[i].Err = a.c.ClusterAt(ctx, x.ID, protocol.MethodAuditLog, req, &answers[i])
		})
	}
	asked.Wait()

	answered := false
	var failed error
	for _, x := range out.Instances {
		switch {
		case x.Err == nil, errors.Is(x.Err, client.ErrNotFound), errors.Is(x.Err, client.ErrPreconditionFailed):
			answered = true
		case errors.Is(x.Err, client.ErrForbidden), errors.Is(x.Err, client.ErrUnauthenticated):
			return nil, x.Err
		default:
			failed = cmp.Or(failed, x.Err)
		}
	}
	if !answered {
		return nil, failed
	}
	seen := make(map[string]bool)
	for i := range answers {
		for _, line := range answers[i].Lines {
			e, same := auditEvent(line)
			if same != "" && seen[same] {
				continue
			}
			seen[same] = true
			e.Instance = out.Instances[i].Name
			out.Events = append(out.Events, e)
		}
	}
	slices.SortStableFunc(out.Events, func(a, b AuditEvent) int { return b.Time.Compare(a.Time) })
	out.Events = out.Events[:min(lines, len(out.Events))]
	return out, nil
}

// auditEvent parses a log line. Events with equal, non-empty texts come from one entry of a shard's
// log: every instance that applies it has a line about it.
func auditEvent(line string) (e AuditEvent, same string) {
	d := json.NewDecoder(strings.NewReader(line))
	if _, err := d.Token(); err != nil {
		return e, ""
	}
	index := ""
	for d.More() {
		key, err := d.Token()
		var raw json.RawMessage
		if err != nil || d.Decode(&raw) != nil {
			break
		}
		value := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			value = text
		}
		switch key {
		case "title":
			e.Title = value
		case "message":
			e.Message = value
		case "severity":
			e.Severity = value
		case "initiator":
			e.Initiator = value
		case "id":
			e.ID = value
		case "time":
			e.Time, _ = time.Parse(time.RFC3339, value)
		default:
			name, _ := key.(string)
			e.Fields = append(e.Fields, AuditField{name, value})
			if name == "index" {
				index = value
			}
		}
	}
	if index == "" {
		return e, ""
	}
	parts := []string{index, e.Title, e.Message}
	for _, f := range e.Fields {
		parts = append(parts, f.Key, f.Value)
	}
	return e, strings.Join(parts, "\x00")
}
