package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// auditRows is how many events a page of the audit log has.
const auditRows = 50

// auditEverything is the order, in addresses, that has the cluster's own changes too.
const auditEverything = "all"

// auditPage shows the last lines of the instances' audit logs: who did what, and why. Changes of
// state that the cluster makes by itself are left out unless somebody asks for them: there are many.
func auditPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	words, order, outcome := q.Get("prefix"), q.Get("order"), q.Get("outcome")
	if order != auditEverything {
		order = ""
	}
	if !slices.Contains(auditOutcomes, outcome) {
		outcome = ""
	}
	at := func(pairs ...string) string { // the last value of a key counts
		return address("/audit", append([]string{"prefix", words, "order", order, "outcome", outcome}, pairs...)...)
	}
	p := &page{
		Section: "Audit", Title: "Audit log",
		Lead: "What operators did, the newest first.",
		Filter: &filter{Action: "/audit", Label: "Contains", Prefix: words, Order: order, Outcome: outcome,
			Orders: []choice{
				{Text: "people", Href: address("/audit", "prefix", words, "outcome", outcome), Current: order == ""},
				{Text: "people and the cluster", Href: at("order", auditEverything), Current: order != ""},
			}, Outcomes: []choice{{Text: "any", Href: address("/audit", "prefix", words, "order", order),
				Current: outcome == ""}}},
	}
	for _, o := range auditOutcomes {
		p.Filter.Outcomes = append(p.Filter.Outcomes, choice{Text: o, Href: at("outcome", o), Current: o == outcome})
	}
	log, err := v.admin.AuditLog(ctx, admin.MaxAuditLines)
	if errors.Is(err, client.ErrForbidden) {
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
		case errors.Is(x.Err, client.ErrNotFound):
			none++
		default:
			p.note("warn", "The log of "+visible(x.Name)+" is missing here: "+sentence(visibleText(x.Err.Error())))
		}
	}
	t := newTable("events", "Last events", "Nothing has happened yet.",
		col("Event"), col("When"), col("Who"), col("About"), col("Reason"), col("Outcome"), col("In the log of"))
	switch {
	case none == len(log.Instances):
		t.Empty = "No instance writes an audit log. Start them with --audit and the name of a file."
	case none > 0:
		p.note("warn", plural(uint64(none), "instance")+" of "+group(uint64(len(log.Instances)))+
			" without an audit log. What they are asked for is not here: start them with --audit.")
	}
	shown, folded := eventsOf(log.Events, words, outcome, order == "")
	if folded > 0 {
		t.Count = plural(uint64(folded), "change") + " of state by the cluster not shown"
		t.Empty = "Nobody has done anything yet."
	}
	switch {
	case words != "":
		t.Empty = "No such event contains “" + visible(words) + "”."
	case outcome != "":
		t.Empty = "No event has the outcome “" + outcome + "”."
	}
	if after := q.Get("after"); after != "" {
		t.First = at()
		if i := slices.IndexFunc(shown, func(e *admin.AuditEvent) bool { return e.ID == after }); i >= 0 {
			shown = shown[i+1:]
		}
	}
	for i, e := range shown {
		if i == auditRows {
			t.Next = at("after", shown[i-1].ID)
			break
		}
		t.Rows = append(t.Rows, auditRow(e))
	}
	p.Tables = []table{t}
	return p, nil
}

// auditOutcomes are the outcomes of a change. An event of one that was only asked for says that
// the instance took it on. What came of it has an event of its own where the instance learns it.
var auditOutcomes = []string{"asked", "done", "refused", "undecided"}

// verbOf splits an event's title into the verb and the outcome, one of auditOutcomes. What is no
// request has no outcome.
func verbOf(title string) (verb, outcome string) {
	if verb, ok := strings.CutPrefix(title, "ask_"); ok {
		return verb, "asked"
	}
	if outcome, verb, ok := strings.Cut(title, "_"); ok && slices.Contains(auditOutcomes, outcome) {
		return verb, outcome
	}
	return title, ""
}

// withOutcomes returns the events, the newest first, without those that ask for a change whose
// outcome is there too: the outcome has the fields of both. An instance writes the two in its own
// log, in order, with the fields that both have alike.
func withOutcomes(events []admin.AuditEvent) (list []*admin.AuditEvent) {
	type request struct{ verb, initiator, instance string }
	waiting := map[request][]*admin.AuditEvent{} // outcomes whose request is not found yet, the oldest last
	for i := range events {
		e := &events[i]
		verb, outcome := verbOf(e.Title)
		key := request{verb, e.Initiator, e.Instance}
		if outcome == "asked" {
			n := len(waiting[key]) - 1
			for n >= 0 && !sameRequest(e, waiting[key][n]) {
				n--
			}
			if n >= 0 {
				o := waiting[key][n]
				waiting[key] = slices.Delete(waiting[key], n, n+1)
				for _, f := range e.Fields {
					if !slices.ContainsFunc(o.Fields, func(x admin.AuditField) bool { return x.Key == f.Key }) {
						o.Fields = append(o.Fields, f)
					}
				}
				continue
			}
		} else if outcome != "" {
			o := *e
			o.Fields = slices.Clone(e.Fields)
			e = &o
			waiting[key] = append(waiting[key], e)
		}
		list = append(list, e)
	}
	return list
}

// sameRequest reports whether two events have no field with two values.
func sameRequest(a, b *admin.AuditEvent) bool {
	for _, f := range a.Fields {
		if slices.ContainsFunc(b.Fields, func(x admin.AuditField) bool { return x.Key == f.Key && x.Value != f.Value }) {
			return false
		}
	}
	return true
}

// eventsOf are the events with an outcome, or with any, that contain a text in any letter case.
// people leaves out what the cluster does by itself, and counts it.
func eventsOf(events []admin.AuditEvent, words, outcome string, people bool) (shown []*admin.AuditEvent, folded int) {
	words = strings.ToLower(words)
	var list []*admin.AuditEvent
	if outcome == "" {
		list = withOutcomes(events)
	} else {
		for i := range events {
			list = append(list, &events[i])
		}
	}
	for _, e := range list {
		if _, o := verbOf(e.Title); outcome != "" && o != outcome {
			continue
		}
		all := []string{e.Title, strings.ReplaceAll(e.Title, "_", " "), e.Message, e.Initiator, e.Instance}
		for _, f := range e.Fields {
			all = append(all, f.Key+" "+f.Value)
		}
		if !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(strings.ToLower(s), words) }) {
			continue
		}
		if people && e.Initiator == clusterInitiator {
			folded++
			continue
		}
		shown = append(shown, e)
	}
	return shown, folded
}

// clusterInitiator is who does what the cluster does by itself.
const clusterInitiator = "cluster"

// outcomeKinds are the colours of outcomes.
var outcomeKinds = map[string]string{"asked": "quiet", "refused": "bad", "undecided": "warn"}

func auditRow(e *admin.AuditEvent) row {
	verb, outcome := verbOf(e.Title)
	event := cell{Text: visible(strings.ReplaceAll(verb, "_", " "))}
	who, reason, result := cell{Text: visible(e.Initiator), Kind: "who"}, none(), none()
	if outcome != "" {
		result = cell{Text: outcome, Kind: outcomeKinds[outcome]}
	}
	if outcome == "" || outcome == "asked" { // else the message has the outcome's word alone
		event.Note = sentence(visible(e.Message))
	}
	var about, details []string
	for _, f := range e.Fields {
		value, list := visible(f.Value), []string(nil)
		if json.Unmarshal([]byte(f.Value), &list) == nil {
			if len(list) == 0 {
				continue
			}
			value = visibleText(strings.Join(list, " "))
		}
		if f.Key == "semaphore" && strings.HasPrefix(f.Value, client.ConfigPrefix) {
			about = append(about, "configuration "+visible(strings.TrimPrefix(f.Value, client.ConfigPrefix)))
			continue
		}
		pair := visible(strings.ReplaceAll(strings.TrimPrefix(f.Key, "asked_"), "_", " ")) + " " + value
		switch f.Key {
		case "reason", "why", "asked_reason":
			reason = cell{Text: visible(f.Value), Kind: "about"}
		case "error":
			result.Note = sentence(visibleText(f.Value))
		case "via":
			who.Note = "via " + visible(f.Value)
		case "asked_undo":
			event.Text = "un" + event.Text
		case "index", "shard", "log_time", "remote", "instance_id":
			details = append(details, pair)
		default:
			about = append(about, pair)
		}
	}
	subject := cell{Text: strings.Join(about, ", "), Kind: "wide", Note: strings.Join(details, ", ")}
	return row{Key: e.ID, Tone: e.Severity, Cells: []cell{
		event, since(e.Time), who, subject, reason, result, text(visible(e.Instance)),
	}}
}
