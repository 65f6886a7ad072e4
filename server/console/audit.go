package console

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// auditPage shows the last lines of the instances' audit logs: who did what, and why.
func auditPage(ctx context.Context, v *viewer, _ url.Values) (*page, error) {
	p := &page{
		Section: "Audit", Title: "Audit log",
		Lead: "What operators asked for and what has changed in the cluster, the newest first.",
	}
	log, err := v.admin.AuditLog(ctx, pageSize)
	if errors.Is(err, client.Forbidden) {
		p.note("warn", "You may not see the audit log: that needs the right admin on the path /.")
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	none := 0
	for _, x := range log.Instances {
		switch {
		case x.Err == nil:
		case errors.Is(x.Err, client.NotFound):
			none++
		default:
			p.note("warn", "The log of "+visible(x.Name)+" is missing here: "+sentence(visibleText(x.Err.Error())))
		}
	}
	t := newTable("events", "Last events", "Nothing has happened yet.",
		col("Event"), col("When"), col("Who"), col("About"), col("Reason"), col("In the log of"))
	switch {
	case none == len(log.Instances):
		t.Empty = "No instance writes an audit log. Start them with --audit and the name of a file."
	case none > 0:
		p.note("warn", plural(uint64(none), "instance")+" of "+group(uint64(len(log.Instances)))+
			" without an audit log. What they are asked for is not here: start them with --audit.")
	}
	for i := range log.Events {
		t.Rows = append(t.Rows, auditRow(&log.Events[i]))
	}
	p.Tables = []table{t}
	return p, nil
}

func auditRow(e *admin.AuditEvent) row {
	event := cell{Text: visible(strings.ReplaceAll(e.Title, "_", " ")), Note: sentence(visible(e.Message))}
	who, reason := cell{Text: visible(e.Initiator), Kind: "who"}, quiet("–")
	var about, details []string
	for _, f := range e.Fields {
		pair := visible(strings.ReplaceAll(strings.TrimPrefix(f.Key, "asked_"), "_", " ")) + " " + visible(f.Value)
		switch f.Key {
		case "reason", "why", "asked_reason":
			reason = cell{Text: visible(f.Value), Kind: "about"}
		case "via":
			who.Note = "by a " + visible(f.Value)
		case "index", "shard", "log_time", "remote", "instance_id":
			details = append(details, pair)
		default:
			about = append(about, pair)
		}
	}
	subject := cell{Text: strings.Join(about, ", "), Kind: "wide", Note: strings.Join(details, ", ")}
	return row{Key: e.ID, Tone: e.Severity, Cells: []cell{
		event, since(e.Time), who, subject, reason, text(visible(e.Instance)),
	}}
}
