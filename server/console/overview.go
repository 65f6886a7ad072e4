package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// overviewPage shows whether the cluster works, what may be lost, what waits longest and is
// busiest, and what the governor does.
func overviewPage(ctx context.Context, v *viewer, _ url.Values) (*page, error) {
	p := &page{Section: "Overview", Title: "Overview"}
	s, err := v.admin.Status(ctx)
	if errors.Is(err, client.ErrForbidden) {
		p.Notes = []note{{Tone: "warn", Text: "You may not see the cluster: that needs the right read on the path /. " +
			"Semaphores and sessions of your nodes are behind the links above."}}
		if who, err := v.identity(ctx); err != nil || len(who.Rights) == 0 {
			return p, nil
		}
		addBusiest(ctx, v, p)
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	plan, err := v.admin.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if s.Name != "" {
		p.Name = visible(s.Name)
	}
	p.Notes = healthNotes(s, time.Now())
	ready := 0
	for i := range s.Shards {
		if s.Shards[i].Ready {
			ready++
		}
	}
	online := 0
	for i := range s.Instances {
		if s.Instances[i].Current == "Online" {
			online++
		}
	}
	state := cell{Text: s.Health.State, Kind: map[string]string{"healthy": "good", "degraded": "warn"}[s.Health.State]}
	state.Kind = cmp.Or(state.Kind, "bad")
	leader := cell{Text: visible(s.Meta.Leader)}
	if s.Meta.Leader == "" {
		leader = cell{Text: "none", Kind: "bad"}
	}
	p.Facts = []fact{
		{"health", "Cluster", state},
		{"instances", "Instances online", text(fmt.Sprintf("%d of %d", online, len(presentInstances(s))))},
		{"shards", "Shards ready", text(fmt.Sprintf("%d of %d", ready, len(s.Shards)))},
		{"leader", "Meta shard led by", leader},
		{"plan", "Governor", text(planText(plan))},
		{"version", "Cluster version", text(cmp.Or(visible(s.Version), "–"))},
	}
	instances := instanceTable(s)
	if v.mayOperate(ctx, "/") {
		instances.Columns = append(instances.Columns, col(actionColumn))
		for i, x := range presentInstances(s) {
			verb, word := "drain", "Drain"
			switch {
			case x.Current == offline:
				verb, word = "expel", "Expel"
			case x.Draining:
				verb, word = "undrain", "Undrain"
			}
			r := &instances.Rows[i]
			r.Cells = append(r.Cells, cell{Text: word, Href: actionURL(verb, "instance", x.Name)})
		}
	}
	addTrends(ctx, v, p)
	addBusiest(ctx, v, p)
	p.Tables = append(p.Tables, instances, shardTable(s), planTable(plan), moveTable(s))
	if v.mayOperate(ctx, "/") { // the others see no list, as of tokens
		list, err := v.auth.get(rightsTime, func() (*admin.AuthState, error) { return v.admin.Auth(ctx) })
		if err == nil && len(list.Trusts) > 0 {
			p.Tables = append(p.Tables, trustTable(list.Trusts))
		}
	}
	return p, nil
}

func trustTable(list []admin.Trust) table {
	t := newTable("trusts", "Trusts", "", col("Trust"), col("Issuer"), col("Audience"), col("Rules"), col("Keys"), col("Keys since"))
	for _, x := range list {
		var rules, keys []string
		for _, r := range x.Rules {
			rules = append(rules, visible(r.String()))
		}
		for _, k := range x.KeyIDs {
			keys = append(keys, visible(cmp.Or(k.ID, k.Type)))
		}
		from, at := x.Issuer, none()
		if x.SPIFFE != "" {
			from = strings.TrimSpace("spiffe://" + x.SPIFFE + " " + from)
		}
		if x.KeysAtMS > 0 {
			at = cell{At: int64(x.KeysAtMS)}
		}
		t.Rows = append(t.Rows, row{Key: x.Name, Cells: []cell{{Text: visible(x.Name), Kind: "name"}, text(visible(from)),
			text(visible(x.Audience)), text(cmp.Or(strings.Join(rules, "; "), "–")), text(cmp.Or(strings.Join(keys, ", "), "–")), at}})
	}
	return t
}

func presentInstances(s *admin.Status) []admin.Instance {
	return slices.DeleteFunc(slices.Clone(s.Instances), func(i admin.Instance) bool { return i.Current == "Expelled" })
}

// offline is the state of an instance that is not heard of.
const offline = "Offline"

// healthNotes say in one sentence what is wrong and what to do. Whatever else is known is folded.
func healthNotes(s *admin.Status, now time.Time) (notes []note) {
	h, tone := &s.Health, "warn"
	if h.State == "broken" {
		tone = "bad"
	}
	problems := h.Problems
	if text := offlineText(s, now); text != "" {
		notes = append(notes, note{Tone: tone, Text: text})
	} else if len(problems) > 0 {
		notes = append(notes, note{Tone: tone, Text: sentence(visibleText(problems[0]))})
		problems = problems[1:]
	}
	for _, text := range problems {
		notes = append(notes, note{Tone: tone, Text: sentence(visibleText(text)), Fold: true})
	}
	if !h.Confirmed {
		notes = append(notes, note{Tone: "warn", Text: fmt.Sprintf(
			"What this page says may be old: no majority of the meta shard has confirmed it for %d s.", h.AgeMS/1000)})
	}
	if h.Upgrade != "" {
		notes = append(notes, note{Tone: "warn", Text: sentence(visibleText(h.Upgrade))})
	}
	if len(notes) > 0 {
		for _, text := range h.Losses {
			notes = append(notes, note{Tone: "warn", Text: sentence(visibleText(text)), Fold: true})
		}
	}
	return notes
}

// offlineText names the instances that are offline, and what to do about them; empty: there are
// none. An instance is not expelled while something has no majority: it may be what is missing.
func offlineText(s *admin.Status, now time.Time) string {
	var names []string
	longest := time.Duration(0)
	for _, x := range presentInstances(s) {
		if x.Current == offline {
			names = append(names, visible(x.Name))
			if x.ChangedAt > 0 {
				longest = max(longest, now.Sub(ofMillis(int64(x.ChangedAt))))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	verb, them := " is offline", "it"
	if last := len(names) - 1; last > 0 {
		verb, them = " are offline", "them"
		names = []string{strings.Join(names[:last], ", ") + " and " + names[last]}
	}
	if longest > 0 {
		verb += " for " + coarseAge(longest)
	}
	if s.Health.State == "broken" {
		return names[0] + verb + ": start " + them + "."
	}
	return names[0] + verb + ": start " + them + ", or expel " + them + "."
}

func planText(p *admin.Plan) string {
	switch {
	case len(p.Steps) > 0:
		return plural(uint64(len(p.Steps)), "step") + " to do"
	case len(p.Waits) > 0:
		return plural(uint64(len(p.Waits)), "step") + " waiting"
	}
	return "nothing to do"
}

func instanceTable(s *admin.Status) table {
	t := newTable("instances", "Instances", "No instance is known.",
		col("Instance"), col("State"), col("Leads shards"), col("Address"), col("Replicaset"), col("Failure domain"),
		col("Version"), col("Since"))
	for _, i := range presentInstances(s) {
		leads := make([]string, len(i.Leads))
		for k, id := range i.Leads {
			leads[k] = strconv.FormatUint(id, 10)
		}
		if i.Name == s.Meta.Leader {
			leads = append(leads, "meta")
		}
		domains := make([]string, 0, len(i.Domain))
		for k, d := range i.Domain {
			domains = append(domains, visible(k+"="+d))
		}
		slices.Sort(domains)
		changed := none()
		if i.ChangedAt > 0 {
			changed = cell{At: int64(i.ChangedAt)}
		}
		t.Rows = append(t.Rows, row{Key: i.UUID, Cells: []cell{
			{Text: visible(i.Name), Kind: "name"}, instanceState(&i), text(cmp.Or(strings.Join(leads, ", "), "–")),
			text(visible(i.Address)), text(visible(i.Replicaset)), text(cmp.Or(strings.Join(domains, ", "), "–")),
			text(visible(i.Version)), changed,
		}})
	}
	return t
}

func instanceState(i *admin.Instance) cell {
	state := cell{Text: i.Current, Kind: "good", Note: visible(i.Reason)}
	if i.Current == "Online" && i.AtTarget() {
		state.Note = "" // why it once came
	}
	switch {
	case i.Current != "Online":
		state.Kind = "bad"
	case i.Reachable != nil && !*i.Reachable:
		state.Text, state.Kind = "not heard", "bad"
	case i.Draining:
		state.Text, state.Kind = "draining", "warn"
	case !i.AtTarget():
		state.Text, state.Kind = i.Current+" → "+i.Target, "warn"
	}
	return state
}

func shardTable(s *admin.Status) table {
	t := newTable("shards", "Shards", "No shard exists yet.",
		col("Shard"), col("State"), col("Leader"), col("Replicas"), numCol("Buckets"), numCol("Losses tolerated"),
		col("Replicaset"))
	groups := make(map[uint64]*protocol.ClusterGroup)
	for i := range s.Health.Shards {
		groups[s.Health.Shards[i].Shard] = &s.Health.Shards[i]
	}
	for i := range s.Shards {
		x := &s.Shards[i]
		state, loss, leader := cell{Text: "ready", Kind: "good"}, none(), x.Master
		g := groups[x.ID]
		if g != nil {
			loss, leader = number(uint64(max(0, g.FaultTolerance))), cmp.Or(g.Leader, x.Master)
		}
		switch {
		case g != nil && !g.Majority:
			state = cell{Text: "no majority", Kind: "bad"}
		case g != nil && g.Leader == "":
			state = cell{Text: "no leader", Kind: "bad"}
		case !x.Ready:
			state = cell{Text: "not ready", Kind: "warn"}
		case g != nil && g.AtRisk():
			state = cell{Text: "at risk", Kind: "warn"}
		}
		if x.TargetMaster != "" && x.TargetMaster != x.Master {
			state.Note = "leadership moves to " + visible(x.TargetMaster)
		}
		var replicas []string
		for _, r := range x.Replicas {
			word := visible(r.Instance)
			if r.Role != "voter" {
				word += " (" + r.Role + ")"
			}
			if r.Role != r.TargetRole {
				word += " → " + r.TargetRole
			}
			replicas = append(replicas, word)
		}
		t.Rows = append(t.Rows, row{Key: strconv.FormatUint(x.ID, 10), Cells: []cell{
			text(strconv.FormatUint(x.ID, 10)), state, text(cmp.Or(visible(leader), "–")),
			text(strings.Join(replicas, ", ")), number(uint64(x.Buckets)), loss, text(visible(x.Replicaset)),
		}})
	}
	return t
}

func planTable(p *admin.Plan) table {
	t := newTable("plan", "Plan", "Nothing to do: the cluster is as it is configured.",
		col("What"), col("When"), col("Why"))
	if p.Leader == "" {
		t.Empty = "Nobody governs now, so nothing is planned."
	}
	for i, step := range p.Steps {
		t.Rows = append(t.Rows, row{Key: "step " + step, Cells: []cell{
			text(visible(step)), {Text: "next", Kind: "good"}, quiet(fmt.Sprintf("step %d", i+1)),
		}})
	}
	words := map[string]cell{
		"underway": text("under way"), "follows": text("later"), "outside": {Text: "needs an operator", Kind: "warn"},
	}
	for _, w := range p.Waits {
		t.Rows = append(t.Rows, row{Key: "wait " + w.What + "\x00" + w.Why, Cells: []cell{
			text(visible(w.What)), words[w.Kind], text(visible(w.Why)),
		}})
	}
	return t
}

func moveTable(s *admin.Status) table {
	t := newTable("moves", "Moves of buckets", "No bucket moves.",
		col("Buckets"), col("From shard"), col("To shard"), col("Phase"))
	for _, m := range s.Moves {
		t.Rows = append(t.Rows, row{Key: fmt.Sprint(m.Tier, " ", m.First, " ", m.Epoch), Cells: []cell{
			text(fmt.Sprintf("%s %d to %d", visible(m.Tier), m.First, m.First+m.Count-1)),
			text(strconv.FormatUint(m.From, 10)), text(strconv.FormatUint(m.To, 10)), text(m.Phase),
		}})
	}
	return t
}
