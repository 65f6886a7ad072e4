package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

var policies = choices[client.Policy]{
	{"fifo", client.PolicyFIFO}, {"priority", client.PolicyPriority}, {"fair", client.PolicyFair},
}

// queueFlags are the flags of a semaphore's options.
type queueFlags struct {
	policy  *client.Policy
	aging   *time.Duration
	weights *[]string
	number  *uint
	slots   *[]string
	history *int
	preempt preemptFlags
	bounds  boundFlags
}

func addQueueFlags(c *cobra.Command) *queueFlags {
	f := c.Flags()
	q := &queueFlags{
		policy: parsedVar(f, "policy", "", policies.parse,
			"Who is served next: fifo, priority (the highest --priority first) or fair (keys share the units by weight)."),
		aging: parsedVar(f, "aging", "", parseAging,
			"How much longer a waiter must have waited to be served before one of a priority one level higher: "+
				"1s to 24h, or 0 for never. Implies --policy priority (default with it: 1m)."),
		weights: f.StringArray("weight", nil,
			"Weight of a key, as KEY=N with N from 1 to 1000; repeat it. Implies --policy fair (default: 1 each)."),
		number: f.Uint("slots", 0, "Make the units slots that are named 0, 1, ...: their number, 1 to 1024."),
		slots: f.StringArray("slot", nil,
			"A slot, as NAME or NAME:LABEL,LABEL; repeat it for each. Grants take the first free ones, so scarce kinds go to the end."),
		preempt: addPreemptFlags(c),
		bounds:  addBoundFlags(c),
		history: f.Int("history", 0,
			"How many holds that ended are kept, 0 to 32. A new semaphore has 32 with another of these flags, else 0."),
	}
	optional(f, "slots", "history")
	return q
}

func parseAging(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	return readDuration(text)
}

// given reports whether any of the flags is.
func (q *queueFlags) given(c *cobra.Command) bool {
	return slices.ContainsFunc([]string{"policy", "aging", "weight", "slots", "slot", "history", "preempt", "grace",
		"min-hold", "max-hold", "extend"}, func(name string) bool { return c.Flag(name).Changed })
}

// check refuses flags that say different things. weights are those of --weight.
func (q *queueFlags) check(c *cobra.Command) (weights map[string]uint64, err error) {
	given := func(name string) bool { return c.Flag(name).Changed }
	weights, err = parseWeights(*q.weights)
	switch {
	case err != nil:
	case given("policy") && *q.policy != client.PolicyPriority && given("aging"),
		given("policy") && *q.policy != client.PolicyFair && given("weight"), given("aging") && given("weight"):
		err = usagef("--aging belongs to --policy priority, and --weight to --policy fair; leave one out")
	case given("slots") && given("slot"):
		err = usagef("--slots and --slot are both given; keep one")
	case given("slots") && *q.number == 0:
		err = usagef("--slots is 0; it must be 1 to 1024")
	case given("history") && *q.history < 0:
		err = usagef("--history is %d; it must be 0 to 32", *q.history)
	}
	return weights, err
}

// set sets what the flags give, which check has looked at.
func (q *queueFlags) set(c *cobra.Command, weights map[string]uint64, o *client.SemaphoreConfig) {
	given := func(name string) bool { return c.Flag(name).Changed }
	if given("policy") || given("aging") || given("weight") {
		o.Policy, o.Aging, o.Weights = *q.policy, 0, nil
	}
	switch {
	case given("aging"):
		o.Policy, o.Aging = client.PolicyPriority, *q.aging
	case given("weight"):
		o.Policy, o.Weights = client.PolicyFair, weights
	case given("policy") && *q.policy == client.PolicyPriority:
		o.Aging = client.DefaultAging
	}
	switch {
	case given("slots"):
		o.Numbered, o.Slots = true, nil
	case given("slot"):
		o.Numbered, o.Slots = false, parseSlots(*q.slots)
	}
	q.bounds.set(c, o)
	q.preempt.set(c, o)
	setGiven(c, "history", &o.History, q.history)
}

// semaphore is the limit and the configuration of a semaphore that is made with these flags; named
// are slots that are given in another way.
func (q *queueFlags) semaphore(c *cobra.Command, limit uint64, named []client.Slot) (uint64,
	client.SemaphoreConfig, error) {
	var o client.SemaphoreConfig
	weights, err := q.check(c)
	if err != nil {
		return 0, o, err
	}
	q.set(c, weights, &o)
	if named != nil {
		o.Slots = named
	}
	if !c.Flag("history").Changed && (q.given(c) || named != nil) {
		o.History = protocol.MaxHistory
	}
	slots := uint64(len(o.Slots))
	if o.Numbered {
		slots = uint64(*q.number)
	}
	limit, err = limitOf(c, limit, slots)
	return limit, o, err
}

func parseWeights(list []string) (map[string]uint64, error) {
	weights := make(map[string]uint64, len(list))
	for _, text := range list {
		at := strings.LastIndexByte(text, '=')
		if at < 0 {
			return nil, usagef("--weight %q is not KEY=N", text)
		}
		n, err := strconv.ParseUint(text[at+1:], 10, 64)
		if err != nil {
			return nil, usagef("--weight %q is not KEY=N with a number N", text)
		}
		weights[text[:at]] = n
	}
	return weights, nil
}

func parseSlots(list []string) (slots []client.Slot) {
	for _, text := range list {
		name, labels, labelled := strings.Cut(text, ":")
		s := client.Slot{Name: name}
		if labelled {
			s.Labels = strings.Split(labels, ",")
		}
		slots = append(slots, s)
	}
	return slots
}

// acquireFlags are the flags of what an acquire asks for beyond a count.
type acquireFlags struct {
	priority *int
	key      *string
	labels   *[]string
	slots    *[]string
	deadlock *bool
	maxHold  func() []client.AcquireOption
}

func addAcquireFlags(c *cobra.Command) *acquireFlags {
	f := c.Flags()
	x := &acquireFlags{
		priority: f.Int("priority", client.DefaultPriority,
			"Level of the request, 0 to 9, the highest first, where the policy is priority; without it 5."),
		key:      f.String("key", "", "Whose share the units are of, where the policy is fair; at most 64 bytes."),
		labels:   f.StringArray("label", nil, "Take only slots with this label; repeat it for several."),
		slots:    f.StringArray("slot", nil, "Take exactly this slot; repeat it for several. The count is their number."),
		deadlock: addDeadlockFlag(c),
		maxHold:  addMaxHold(c),
	}
	optional(f, "priority")
	return x
}

// addDeadlockFlag adds --fail-on-deadlock.
func addDeadlockFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("fail-on-deadlock", false,
		"Leave the queue, with exit code 3, if this session and others wait for each other. Of those with this flag one leaves.")
}

func (x *acquireFlags) options(c *cobra.Command) (opts []client.AcquireOption, err error) {
	if c.Flag("priority").Changed {
		opts = append(opts, client.Priority(*x.priority))
	}
	if c.Flag("key").Changed {
		opts = append(opts, client.Key(*x.key))
	}
	if len(*x.labels) > 0 {
		opts = append(opts, client.Labels(*x.labels...))
	}
	if len(*x.slots) > 0 {
		if c.Flag("count").Changed {
			return nil, usagef("--count and --slot are both given; the count is the number of slots")
		}
		opts = append(opts, client.Slots(*x.slots...))
	}
	if *x.deadlock {
		opts = append(opts, client.FailOnDeadlock())
	}
	return append(opts, x.maxHold()...), nil
}

func semAlter(a *app) *cobra.Command {
	c := command("alter NAME", "Change a semaphore's policy, slots, bounds or history",
		`Change the given options of a semaphore. Owners keep what they have; waiters keep their
places. With --slot the list is the new one: a slot that is left out goes when it is given back.
Numbered slots are resized with signalbox sem resize. Needs the right admin on the node's path.`)
	c.Example = `  signalbox sem alter gpu --policy fair --weight research=2 --weight training=1
  signalbox sem alter gpu --policy priority --aging 30s`
	flags := addQueueFlags(c)
	reason := addReason(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		weights, err := flags.check(cmd)
		if err != nil {
			return err
		}
		if !flags.given(cmd) {
			return usagef("no option is given; the form is: %s", usageLine(cmd))
		}
		return inv.withSession(func(s *client.Session) error {
			err := s.Alter(inv.ctx, args[0], func(o *client.SemaphoreConfig) { flags.set(cmd, weights, o) },
				client.Reason(*reason))
			if err != nil {
				return err
			}
			w, text := impossible(inv, args[0])
			return inv.printer().message(row{{"name", "", args[0]}, {"altered", "", true}, {"never_granted", "", neverRow(w)}},
				"altered %s"+text, args[0])
		})
	})
	return c
}

// warnOfPolicy says what the semaphore's policy ignores: it is kept all the same, for the policy
// may change.
func (x *acquireFlags) warnOfPolicy(inv *invocation, c *cobra.Command, name string) {
	if !c.Flag("priority").Changed && !c.Flag("key").Changed {
		return
	}
	n, err := inv.openNode()
	if err != nil {
		return // acquiring says why
	}
	policy := client.PolicyFIFO
	switch s, err := n.Describe(inv.ctx, name, client.ReadConsistency(client.Strict)); {
	case err != nil && !c.Flag("create-limit").Changed, err == nil && s.Ephemeral:
		return // acquiring says why
	case err == nil && s.Config != nil:
		policy = s.Config.Policy
	}
	for _, x := range []struct {
		flag string
		by   client.Policy
	}{{"priority", client.PolicyPriority}, {"key", client.PolicyFair}} {
		if c.Flag(x.flag).Changed && policy != x.by {
			inv.note("signalbox: --%s has no effect: the policy of %s is %s; it counts after "+
				"signalbox sem alter %s --policy %s\n",
				x.flag, terminal.Sanitize(name), policies.word(policy), terminal.Sanitize(name), policies.word(x.by))
		}
	}
}

// slotError adds to a refusal which slots there are not, and how many have the labels.
func slotError(inv *invocation, err error, name string, slots, labels []string) error {
	if !errors.Is(err, client.ErrBadRequest) && !errors.Is(err, client.ErrNotFound) || len(slots)+len(labels) == 0 {
		return err
	}
	n, failed := inv.openNode()
	if failed != nil {
		return err
	}
	s, failed := n.Describe(inv.ctx, name, client.IncludeSlots(), client.ReadConsistency(client.Strict))
	if failed != nil || s.Config == nil || len(s.Config.Slots) == 0 {
		return err
	}
	matching := 0
	unknown := slices.Clone(slots)
	for _, slot := range s.Config.Slots {
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == slot.Name })
		if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(slot.Labels, l) }) {
			matching++
		}
	}
	switch {
	case len(unknown) > 0:
		return fmt.Errorf("%w: there is no slot %s; signalbox sem describe %s lists them", err, strings.Join(unknown, ", "),
			name)
	case len(labels) > 0:
		return fmt.Errorf("%w: %d of %d slots have %s", err, matching, len(s.Config.Slots), strings.Join(labels, ", "))
	}
	return err
}

func semDrain(a *app) *cobra.Command {
	return slotsMarked(a, command("drain NAME SLOT...",
		"Stop grants of slots; owners keep them until they give them back", ""),
		(*client.Session).Drain, "drained")
}

func semUndrain(a *app) *cobra.Command {
	return slotsMarked(a, command("undrain NAME SLOT...", "Let drained slots be granted again", ""),
		(*client.Session).Undrain, "undrained")
}

func slotsMarked(
	a *app, c *cobra.Command,
	mark func(*client.Session, context.Context, string, []string, ...client.ReasonOption) error, done string,
) *cobra.Command {
	c.Long = c.Short + ". Needs the right admin on the node's path."
	reason := addReason(c)
	c.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		err := mark(s, inv.ctx, args[0], args[1:], client.Reason(*reason))
		return inv.report(slotError(inv, err, args[0], args[1:], nil), row{{"name", "", args[0]}, {done, "", args[1:]}},
			"%s %s of %s", done, strings.Join(args[1:], ", "), args[0])
	})
	return c
}

func slotRow(s *client.Slot) row {
	r := row{{"slot", "slot", s.Name}, {"labels", "labels", strings.Join(s.Labels, ",")},
		{"state", "state", s.State.String()},
		{"token", "token", s.Token}}
	if s.Session == 0 {
		return append(r, field{"session_id", "session", nil}, field{"since", "since", nil})
	}
	return append(r, field{"session_id", "session", sessionID(s.Session)}, field{"since", "since", timestamp{s.Since}})
}

func semHistory(a *app) *cobra.Command {
	c := command("history NAME", "Show who held a semaphore last, and why it ended",
		`Show the holds of a semaphore that ended last, the last one first, and the cause of each: released
or transferred by its client; session_closed; session_expired, and the detail has what the server saw of
it; or a loss that the server decided on, such as released_by_operator, max_hold or preempted, at its
client or at the server. signalbox sem why --last puts the last loss in words.

A semaphore keeps as many as its option --history says: none if it was created without options.
signalbox sem describe shows the holds that go on.`)
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		holds, err := n.History(inv.ctx, args[0])
		if err != nil {
			return err
		}
		slots := ""
		if slices.ContainsFunc(holds, func(h client.Hold) bool { return len(h.Slots) > 0 }) {
			slots = "slots"
		}
		return inv.printer().list(rowsOf(holds, func(h *client.Hold) row {
			return row{
				{"token", "token", h.Token}, {"session_id", "session", sessionID(h.Session)}, {"count", "count", amount(h.Count)},
				{"slots", slots, strings.Join(h.Slots, ",")}, {"description", "description", h.Description},
				{"since", "", timestamp{h.Since}}, {"until", "ended", timestamp{h.Until}},
				{"", "held for", terminal.Age(h.Until.Sub(h.Since))}, {"cause", "cause", h.Cause},
				{"detail", "", h.Detail},
			}
		}), "no hold has ended, or none is kept; signalbox sem alter --history keeps some")
	})
	return c
}

// optionRow adds the options of a semaphore that is not plain.
func optionRow(r row, s *client.Semaphore) row {
	o := s.Config
	if o == nil {
		return r
	}
	r = append(r, field{"policy", "policy", policies.word(o.Policy)})
	if o.Policy == client.PolicyPriority {
		r = append(r, field{"aging_ms", "aging", ms(o.Aging)})
	}
	if o.Policy == client.PolicyFair {
		var list []string
		for key, weight := range o.Weights {
			list = append(list, fmt.Sprintf("%s=%d", key, weight))
		}
		slices.Sort(list)
		r = append(r, field{"weights", "weights", strings.Join(list, " ")})
	}
	r = append(preemptRow(boundRow(r, o), o), field{"history", "history", o.History})
	if len(o.Slots) > 0 {
		r = append(r, field{"slots", "slots", rowsOf(o.Slots, slotRow)})
	}
	return r
}

// queuedOwnerRow and queuedWaiterRow are rows of a semaphore with options.
func queuedOwnerRow(o *client.Owner) row {
	return append(ownerRow(o), field{"slots", "slots", strings.Join(o.Slots, ",")},
		field{"priority", "priority", o.Priority},
		field{"key", "key", o.Key}, field{"preempted", "preempted", o.Preempted}, field{"silent", "silent", o.Silent},
		leftField(o))
}

func queuedWaiterRow(w *client.Waiter) row {
	return append(waiterRow(w), field{"priority", "priority", w.Priority}, field{"key", "key", w.Key},
		field{"labels", "labels", strings.Join(w.Labels, ",")}, field{"slots", "slots", strings.Join(w.Slots, ",")},
		field{"rank", "rank", w.Rank})
}

// waiterRows are the waiters of a semaphore with these options, nil for none.
func waiterRows(o *client.SemaphoreConfig, waiters []client.Waiter) []row {
	if o == nil {
		return rowsOf(waiters, waiterRow)
	}
	rows := rowsOf(waiters, queuedWaiterRow)
	hideIdle(o, rows)
	return rows
}

// hideIdle leaves columns out of a table that mean nothing under these options.
func hideIdle(o *client.SemaphoreConfig, rows []row) {
	idle := map[string]bool{
		"priority": o.Policy != client.PolicyPriority, "key": o.Policy != client.PolicyFair,
		"rank":      o.Policy == client.PolicyFIFO && len(o.Slots) == 0,
		"preempted": o.Preempt == client.PreemptOff, "silent": o.Preempt == client.PreemptOff,
	}
	sparse := map[string]bool{"labels": true, "slots": true, "left_ms": true} // shown if a row has one
	for _, r := range rows {
		for _, f := range r {
			sparse[f.key] = sparse[f.key] && (f.value == nil || f.value == "")
		}
	}
	for _, r := range rows {
		for i := range r {
			if idle[r[i].key] || sparse[r[i].key] {
				r[i].title = ""
			}
		}
	}
}
