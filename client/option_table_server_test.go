package client_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/recipes"
)

// exportedOptions are the exported functions of the package that return an option of a type.
func exportedOptions(t *testing.T, typ string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	must(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		must(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results == nil {
				continue
			}
			if id, ok := fn.Type.Results.List[0].Type.(*ast.Ident); ok && id.Name == typ {
				names = append(names, fn.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// checkRows fails for an option without a row, and for a row without an option.
func checkRows[T any](t *testing.T, typ string, rows map[string]T) {
	t.Helper()
	want := exportedOptions(t, typ)
	if got := slices.Sorted(maps.Keys(rows)); len(want) == 0 || !slices.Equal(got, want) {
		t.Fatalf("the table has rows for %q, and the options %s are %q: give each a row that says which calls take it",
			got, typ, want)
	}
}

// TestAcquireOptions: each call that takes AcquireOptions does what one says, or refuses it. A row
// names the calls that take an option; the others must refuse it.
func TestAcquireOptions(t *testing.T) {
	t.Parallel()
	const all = "Acquire TryAcquire AcquireAll Lock TryLock RLock TryRLock Campaign CampaignByPriority Register Once"
	const plain = "Acquire TryAcquire AcquireAll"
	const waits = "Acquire AcquireAll Lock RLock Campaign CampaignByPriority Register Once"
	rows := map[string]struct {
		option client.AcquireOption
		takes  string
	}{
		"Count":            {client.Count(1), plain},
		"CreateLimit":      {client.CreateLimit(3), plain},
		"Data":             {client.Data("d"), strings.Replace(all, " Register", "", 1)},
		"Ephemeral":        {client.Ephemeral(), plain},
		"ExactLimit":       {client.ExactLimit(3), plain},
		"Exclusive":        {client.Exclusive(), plain},
		"FailOnDeadlock":   {client.FailOnDeadlock(), waits},
		"HoldWhileWaiting": {client.HoldWhileWaiting(time.Minute), "AcquireAll"},
		"Key":              {client.Key("k"), plain + " CampaignByPriority Once"},
		"Labels":           {client.Labels("big"), plain},
		"MaxHold":          {client.MaxHold(time.Hour), all},
		"OnQueued":         {client.OnQueued(func(uint64) {}), all}, // a call that never queues never calls it
		"Priority":         {client.Priority(3), plain + " CampaignByPriority Once"},
		"Shared":           {client.Shared(), plain},
		"Slots":            {client.Slots("g1"), plain},
		"Wait":             {client.Wait(time.Hour), waits},
	}
	checkRows(t, "AcquireOption", rows)

	node := shared.Node(t)
	ctx, c := testContext(t), dial(t, node)
	s := session(t, c)
	slots := client.SemaphoreConfig{Slots: []client.Slot{{Name: "g0"}, {Name: "g1", Labels: []string{"big"}}}}
	must(t, s.Create(ctx, "slots", 2, nil, slots))
	must(t, s.Create(ctx, "queue", 3, nil, client.SemaphoreConfig{Policy: client.PolicyPriority}))
	name := ""
	calls := map[string]func(o client.AcquireOption) (*client.Lease, error){
		"Acquire":    func(o client.AcquireOption) (*client.Lease, error) { return s.Acquire(ctx, name, o) },
		"TryAcquire": func(o client.AcquireOption) (*client.Lease, error) { return s.TryAcquire(ctx, name, o) },
		"AcquireAll": func(o client.AcquireOption) (*client.Lease, error) {
			g, err := s.AcquireAll(ctx, []client.Want{{Name: name}}, o)
			if err != nil {
				return nil, err
			}
			return g.Lease(name), nil
		},
		"Lock":     func(o client.AcquireOption) (*client.Lease, error) { return s.Mutex(name).Lock(ctx, o) },
		"TryLock":  func(o client.AcquireOption) (*client.Lease, error) { return s.Mutex(name).TryLock(ctx, o) },
		"RLock":    func(o client.AcquireOption) (*client.Lease, error) { return s.RWMutex(name).RLock(ctx, o) },
		"TryRLock": func(o client.AcquireOption) (*client.Lease, error) { return s.RWMutex(name).TryRLock(ctx, o) },
		"Campaign": func(o client.AcquireOption) (*client.Lease, error) {
			term, err := s.Election(name).Campaign(ctx, o)
			return term.Lease, err
		},
		"CampaignByPriority": func(o client.AcquireOption) (*client.Lease, error) {
			term, err := s.Election(name, client.ElectByPriority()).Campaign(ctx, o)
			return term.Lease, err
		},
		"Register": func(o client.AcquireOption) (*client.Lease, error) {
			return s.Service(name).Register(ctx, []byte("a:1"), o)
		},
		"Once": func(o client.AcquireOption) (*client.Lease, error) { // the run ends with its lease
			runs, failed := make(chan *client.Lease, 1), make(chan error, 1)
			go func() {
				_, err := recipes.NewOnce(s, name, 24*time.Hour).Run(ctx, func(ctx context.Context, p recipes.Period) error {
					runs <- p.Lease
					<-ctx.Done()
					return nil
				}, o)
				failed <- err
			}()
			select {
			case l := <-runs:
				return l, nil
			case err := <-failed:
				return nil, err
			}
		},
	}
	if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, slices.Sorted(slices.Values(strings.Fields(all)))) {
		t.Fatalf("the calls are %q", got)
	}
	for option, row := range rows {
		for call, f := range calls {
			name = fmt.Sprintf("%s of %s", option, call)
			if strings.Contains(plain, call) { // what it is to be acquired of
				switch option {
				case "Labels", "Slots":
					name = "slots"
				case "Priority":
					name = "queue"
				case "Ephemeral", "Shared", "Exclusive", "CreateLimit", "ExactLimit":
				default:
					must(t, s.Create(ctx, name, 3, nil))
				}
			}
			l, err := f(row.option)
			switch taken := slices.Contains(strings.Fields(row.takes), call); {
			case taken && err != nil:
				t.Errorf("%s refuses %s: %v", call, option, err)
			case !taken && !errors.Is(err, client.ErrBadRequest) && !errors.Is(err, client.ErrPreconditionFailed):
				t.Errorf("%s neither takes nor refuses %s: %v", call, option, err)
			case taken:
				if problem := effect(ctx, option, l); problem != "" {
					t.Errorf("%s takes %s, and ignores it: %s", call, option, problem)
				}
			}
			if l != nil {
				must(t, l.Release(ctx))
			}
		}
	}
}

// effect is what is wrong with a lease that was acquired with the option of a row; empty: nothing, as
// far as a lease that was granted at once shows it.
func effect(ctx context.Context, option string, l *client.Lease) string {
	sem, err := l.Session().Node().Describe(ctx, l.Name(), client.IncludeOwners(), client.ReadConsistency(client.Strict))
	if err != nil || len(sem.Owners) != 1 {
		return fmt.Sprintf("described as %+v, %v", sem, err)
	}
	o := sem.Owners[0]
	ok := true
	switch option {
	case "CreateLimit", "ExactLimit":
		ok = sem.Limit == 3
	case "Data":
		ok = string(o.Data) == "d"
	case "Ephemeral", "Shared":
		ok = sem.Ephemeral && o.Count == 1
	case "Exclusive":
		ok = sem.Ephemeral && o.Count == client.Max
	case "Key":
		ok = o.Key == "k"
	case "Labels", "Slots":
		ok = slices.Equal(l.Slots(), []string{"g1"})
	case "MaxHold":
		ok = !l.Until().IsZero()
	case "Priority":
		ok = o.Priority == 3
	}
	if !ok {
		return fmt.Sprintf("the owner is %+v, of %+v", o, sem)
	}
	return ""
}

// TestSemaphoreConfig: each field changes what a semaphore is described as, at its creation and later.
func TestSemaphoreConfig(t *testing.T) {
	t.Parallel()
	type config = client.SemaphoreConfig
	hold, preempt := config{MaxHold: time.Hour}, config{Preempt: client.PreemptAny}
	graceful := preempt
	graceful.Grace = time.Minute
	rows := map[string]struct {
		base config // that the field goes with
		set  func(*config)
	}{
		"Policy":   {config{}, func(c *config) { c.Policy = client.PolicyPriority }},
		"Aging":    {config{Policy: client.PolicyPriority}, func(c *config) { c.Aging = time.Minute }},
		"Weights":  {config{Policy: client.PolicyFair}, func(c *config) { c.Weights = map[string]uint64{"k": 2} }},
		"Slots":    {config{}, func(c *config) { c.Slots = []client.Slot{{Name: "a"}, {Name: "b"}} }},
		"Numbered": {config{}, func(c *config) { c.Numbered = true }},
		"History":  {config{}, func(c *config) { c.History = 5 }},
		"Preempt":  {config{}, func(c *config) { c.Preempt = client.PreemptAny }},
		"Grace":    {preempt, func(c *config) { c.Grace = time.Minute }},
		"MinHold":  {graceful, func(c *config) { c.MinHold = time.Minute }},
		"MaxHold":  {config{}, func(c *config) { c.MaxHold = time.Hour }},
		"Extend":   {hold, func(c *config) { c.Extend = true }},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if _, ok := rows[f.Name]; !ok {
			t.Errorf("%s has no row", f.Name)
		}
	}
	node := shared.Node(t)
	ctx := testContext(t)
	s := session(t, dial(t, node))
	described := func(name string) config {
		t.Helper()
		sem, err := s.Node().Describe(ctx, name, client.IncludeSlots(), client.ReadConsistency(client.Strict))
		must(t, err)
		if sem.Config == nil {
			return config{}
		}
		for i, slot := range sem.Config.Slots {
			sem.Config.Slots[i] = client.Slot{Name: slot.Name, State: slot.State}
		}
		return *sem.Config
	}
	for field, row := range rows {
		base, created, altered := field+", before", field+", created", field+", altered"
		must(t, s.Create(ctx, base, 2, nil, row.base))
		with := row.base
		row.set(&with)
		must(t, s.Create(ctx, created, 2, nil, with))
		must(t, s.Create(ctx, altered, 2, nil, row.base))
		must(t, s.Alter(ctx, altered, row.set))
		without, is := described(base), described(created)
		if reflect.DeepEqual(without, is) {
			t.Errorf("Create ignores %s: %+v", field, is)
		}
		if is.History, without.History = 0, 0; field != "History" {
			without = described(altered)
			if without.History = 0; !reflect.DeepEqual(without, is) {
				t.Errorf("Alter of %s gives %+v, not %+v", field, without, is)
			}
		} else if got := described(altered).History; got != 5 {
			t.Errorf("Alter of the history gives %d rows", got)
		}
		before := described(altered)
		must(t, s.Alter(ctx, altered, func(*config) {}))
		must(t, s.Alter(ctx, altered, row.set))
		if after := described(altered); !reflect.DeepEqual(before, after) {
			t.Errorf("Alter of %s changes it when it is repeated: %+v, then %+v", field, before, after)
		}
	}
	must(t, s.Create(ctx, "none kept", 2, nil, config{Numbered: true, History: client.NoHistory}))
	if got := described("none kept").History; got != 0 {
		t.Errorf("NoHistory keeps %d rows", got)
	}
	if err := s.Create(ctx, "twice", 1, nil, hold, preempt); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("two configurations: %v", err)
	}
	must(t, s.Create(ctx, "plain", 1, nil, config{}, client.Reason("r")))
	if sem, err := s.Node().Describe(ctx, "plain"); err != nil || sem.Config != nil {
		t.Errorf("the zero value makes %+v, %v", sem, err)
	}
	if err := s.Alter(ctx, "nowhere", func(*config) {}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("Alter of nothing: %v", err)
	}

	must(t, s.Create(ctx, "numbered", 2, nil, config{Numbered: true}))
	named := func(c *config) { c.Slots = []client.Slot{{Name: "a"}, {Name: "b"}} }
	if err := s.Alter(ctx, "numbered", named); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("slots with names and numbers: %v", err)
	}
	must(t, s.Alter(ctx, "numbered", func(c *config) { c.Numbered = false }))
	if got := described("numbered"); got.Numbered || len(got.Slots) > 0 {
		t.Errorf("without numbers it has %+v", got)
	}
	must(t, s.Alter(ctx, "plain", func(c *config) { c.Policy, c.Weights["k"] = client.PolicyFair, 2 }))
	if got := described("plain").Weights["k"]; got != 2 {
		t.Errorf("the weight of k is %d", got)
	}
	_, err := s.Acquire(ctx, "ephemeral", client.Ephemeral())
	must(t, err)
	if err := s.Alter(ctx, "ephemeral", func(*config) {}); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Errorf("Alter of an ephemeral semaphore: %v", err)
	}
	must(t, s.Close(ctx))
	if err := s.Alter(ctx, "plain", func(*config) {}); !errors.Is(err, client.ErrSessionClosed) {
		t.Errorf("Alter by a closed session: %v", err)
	}
}

// TestSessionOptions: each call that begins a session does what each option says.
func TestSessionOptions(t *testing.T) {
	t.Parallel()
	states, stops := make(chan client.State, 100), make(chan error, 100)
	rows := map[string]client.SessionOption{
		"Description": client.Description("text"),
		"KeepAlive":   client.KeepAlive(time.Second), // sent by the client alone
		"OnState":     client.OnState(func(x client.State) { states <- x }),
		"OnStopped":   client.OnStopped(func(err error) { stops <- err }),
		"Timeout":     client.Timeout(time.Hour / 6),
	}
	checkRows(t, "SessionOption", rows)
	node := shared.Node(t)
	ctx, c := testContext(t), dial(t, node)
	calls := map[string]func(o client.SessionOption) (*client.Session, error){
		"Session": func(o client.SessionOption) (*client.Session, error) { return c.Session(ctx, node.Path(), o) },
		"OpenSession": func(o client.SessionOption) (*client.Session, error) {
			s, err := client.OpenSession(ctx, client.Config{Endpoints: []string{node.Addr()}}, node.Path(), o)
			if err == nil {
				t.Cleanup(func() { _ = s.Client().Close() })
			}
			return s, err
		},
		"Restore": func(o client.SessionOption) (*client.Session, error) {
			former, err := c.Session(ctx, node.Path())
			must(t, err)
			return c.Restore(ctx, former.Save(), o)
		},
	}
	for option, o := range rows {
		for call, f := range calls {
			s, err := f(o)
			if err != nil {
				t.Errorf("%s refuses %s: %v", call, option, err)
				continue
			}
			info, err := admin.OfNode(s.Node()).DescribeSession(ctx, s.ID())
			must(t, err)
			must(t, s.Close(ctx))
			ok := true
			switch option {
			case "Description":
				ok = info.Description == "text"
			case "Timeout":
				ok = info.Timeout == time.Hour/6
			case "OnState":
				ok = soon(t, states) != client.State(0)
				for len(states) > 0 {
					<-states
				}
			case "OnStopped":
				ok = errors.Is(soon(t, stops), client.ErrSessionClosed)
			}
			if !ok {
				t.Errorf("%s takes %s, and ignores it: %+v", call, option, info)
			}
		}
	}
}
