package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// action is something that an operator may do. What it is about is in the query of its address.
type action struct {
	title string // a verb and its object
	// consequence says what happens, as the dry run shows it.
	consequence string
	// prepare reads what the action is about: the dry run. It changes nothing.
	prepare func(ctx context.Context, v *viewer, q url.Values) (*target, error)
	do      func(ctx context.Context, v *viewer, t *target, reason string) (done string, err error)
}

// target is what an action is about.
type target struct {
	q    url.Values
	path string // of the coordination node; "/" for the cluster
	name string // that has to be typed, as the page shows it
	back string // address of the object's page
	page *page  // what it is now, and what is lost
	ask  *askForm
	node *client.Node
	id   uint64 // session, token, limit or version
}

// askForm asks for a value that the dry run needs.
type askForm struct {
	Action, Label, Field, Value, Hint string
	Hidden                            []hidden
}

type hidden struct{ Name, Value string }

// confirmForm asks for the reason and for the object's name.
type confirmForm struct {
	Action, Title, Name, CSRF, Back string
	Reason                          string // as typed before
	Hidden                          []hidden
}

const unreachableWarning = "A client that cannot be reached relies on what it held until it reconnects, or until its session's timeout is over. Only a resource that checks fencing tokens is safe in that time."

var actions = map[string]action{
	"kill-session": {
		title: "Kill session", prepare: aboutSession,
		consequence: "The session ends. All that it holds is granted to the next waiters at once, and its memberships end. " + unreachableWarning,
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			return "The session is killed.", t.node.KillSession(ctx, t.id, reason)
		},
	},
	"force-release": {
		title: "Force release of", prepare: aboutOwner,
		consequence: "The owner loses its units, which are granted to the next waiters at once. Its session stays. " + unreachableWarning,
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			n, err := t.node.ForceRelease(ctx, nameOf(t.q), t.id, t.id, reason)
			if err == nil && n == 0 {
				return "This owner had released its units already.", nil
			}
			return "The owner's units are released.", err
		},
	},
	"resize": {
		title: "Resize", prepare: aboutLimit,
		consequence: "A higher limit grants to waiters at once. A lower one takes nothing away: nothing is granted until what is held fits.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			err := v.withSession(ctx, t.path, func(s *client.Session) error { return s.Resize(ctx, nameOf(t.q), t.id, client.Reason(reason)) })
			return "The limit is " + amount(t.id) + ".", err
		},
	},
	"pause": {
		title: "Pause rollout", prepare: aboutRollout,
		consequence: "Targets stay as they are until it is resumed. A version that instances report as bad is replaced all the same.",
		do: onTrack("It is paused.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Pause(ctx, false, locationsOf(t.q)...)
		}),
	},
	"resume": {
		title: "Resume rollout", prepare: aboutRollout,
		consequence: "It goes on where it was paused.",
		do: onTrack("It goes on.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Resume(ctx, locationsOf(t.q)...)
		}),
	},
	"promote": {
		title: "Promote in rollout", prepare: aboutLocation,
		consequence: "The location takes the newest version of the location before it, without waiting for delay, bake time and gates, once all its leaders have the present one.",
		do: onTrack("The location is promoted.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Promote(ctx, locationsOf(t.q)...)
		}),
	},
	"rollback": {
		title: "Roll back in rollout", prepare: aboutVersion,
		consequence: "The location gets the earlier version at once. The version that it leaves is never chosen again. Other locations stay.",
		do: onTrack("The location is rolled back.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Rollback(ctx, t.id, locationsOf(t.q)...)
		}),
	},
	"force-round": {
		title: "Force a round of", prepare: aboutProcess,
		consequence: "A new round starts: after the present one if that is decided, else in its place. Members whose session has ended leave.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			return "A new round starts.", process.Operate(t.node, nameOf(t.q)).Force(ctx, string(cut([]byte(reason), maxRoundReason)))
		},
	},
	"evict": {
		title: "Evict from", prepare: aboutMember,
		consequence: "The membership ends, and a new round of the others starts. The session lives on, and its program may join again.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			return "The member is evicted.", process.Operate(t.node, nameOf(t.q)).Evict(ctx, t.id, string(cut([]byte(reason), maxRoundReason)))
		},
	},
	"drain": {
		title: "Drain instance", prepare: aboutInstance,
		consequence: "Leadership and votes move to other instances, and it gets neither again until its next start, or until it is undrained.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			_, err := v.admin.WithReason(reason).Drain(ctx, t.q.Get("instance"))
			return "The instance is drained. The overview shows how far that is.", err
		},
	},
	"undrain": {
		title: "Undrain instance", prepare: aboutInstance,
		consequence: "It may lead shards and vote again.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			_, err := v.admin.WithReason(reason).Undrain(ctx, t.q.Get("instance"))
			return "The instance may lead and vote again.", err
		},
	},
}

// maxRoundReason bounds the reason that a round or a membership keeps, in bytes.
const maxRoundReason = 256

func actionURL(verb string, pairs ...string) string { return address("/action/"+verb, pairs...) }

// offer adds a button to a page if the viewer has the right for it.
func (p *page) offer(ctx context.Context, v *viewer, text, verb string, pairs ...string) {
	if v.mayOperate(ctx, p.Node) {
		p.Actions = append(p.Actions, link{text, actionURL(verb, pairs...)})
	}
}

// mayOperate says whether the viewer has the right admin on a node, which all actions need. It
// decides what is shown: the server decides what is done.
func (v *viewer) mayOperate(ctx context.Context, path string) bool {
	who, err := v.identity(ctx)
	return err == nil && may(who, "admin", path)
}

// nameOf is the name in a query that was read before.
func nameOf(q url.Values) string {
	name, _ := decodeName(q.Get("name"))
	return name
}

func locationsOf(q url.Values) []string {
	if l := q.Get("location"); l != "" {
		return []string{l}
	}
	return nil
}

// withSession runs f with a session of its own, which operations on semaphores and rollouts need.
func (v *viewer) withSession(ctx context.Context, path string, f func(*client.Session) error) error {
	s, err := v.client.Session(ctx, path, client.Description("console"))
	if err != nil {
		return err
	}
	err = f(s)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = s.Close(ending) // else its timeout ends it
	return err
}

func onTrack(done string, f func(ctx context.Context, t *target, x *rollout.Track) error) func(context.Context, *viewer, *target, string) (string, error) {
	return func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
		err := v.withSession(ctx, t.path, func(s *client.Session) error {
			return f(ctx, t, rollout.Open(s, nameOf(t.q)).WithReason(reason))
		})
		return done, err
	}
}

// about reads the page of an action's object.
func about(ctx context.Context, v *viewer, q url.Values, read pageFunc, path string, keys ...string) (*target, error) {
	p, err := read(ctx, v, q)
	if err != nil {
		return nil, err
	}
	if p.missing {
		return nil, &notFoundError{"It does not exist any more."}
	}
	t := &target{q: url.Values{}, path: p.Node, page: p, name: p.Name}
	for _, k := range append(keys, "node") {
		if q.Get(k) != "" {
			t.q.Set(k, q.Get(k))
		}
	}
	if path != "" {
		t.back = address(path, "node", p.Node, "name", q.Get("name"), "id", q.Get("id"))
		if t.node, err = v.client.Node(ctx, p.Node); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func aboutSession(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, sessionPage, "/session", "id")
	if err == nil {
		t.id = number64(q.Get("id"))
	}
	return t, err
}

func aboutOwner(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	token := number64(q.Get("token"))
	q = maps.Clone(q)
	q.Set("owners", strconv.FormatUint(max(token, 1)-1, 10)) // the page begins with this owner
	t, err := about(ctx, v, q, semaphorePage, "/semaphore", "name", "token")
	if err != nil {
		return nil, err
	}
	t.id = token
	for _, r := range t.page.Tables[0].Rows {
		if r.Key == strconv.FormatUint(t.id, 10) {
			owners := &t.page.Tables[0]
			owners.Rows, owners.Title, owners.Count, owners.First, owners.Next = []row{r}, "Owner that loses its units", "", "", ""
			return t, nil
		}
	}
	return nil, &notFoundError{"This owner has released what it held."}
}

func aboutLimit(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, semaphorePage, "/semaphore", "name", "limit")
	if err != nil {
		return nil, err
	}
	name := nameOf(q)
	sem, err := t.node.Describe(ctx, name, client.MaxItems(1), client.AfterToken(0))
	if err != nil {
		return nil, err
	}
	if sem.Ephemeral {
		return nil, &badRequestError{"An ephemeral semaphore has no limit of its own. It cannot be resized."}
	}
	text := strings.TrimSpace(q.Get("limit"))
	t.ask = &askForm{Label: "New limit", Field: "limit", Value: text, Hint: "Units, 1 to max. The limit is " + amount(sem.Limit) + " now."}
	if text == "" {
		return t, nil
	}
	if t.id, err = strconv.ParseUint(text, 10, 64); text == "max" {
		t.id, err = client.Max, nil
	}
	if err != nil || t.id == 0 {
		return nil, &badRequestError{"The limit is no number of units. Give 1 or more, or max."}
	}
	t.page.Notes = append(t.page.Notes, limitNote(ctx, t.node, name, sem, t.id))
	return t, nil
}

// limitNote says what another limit would do.
func limitNote(ctx context.Context, n *client.Node, name string, sem *client.Semaphore, limit uint64) note {
	if limit < sem.Used {
		return note{"warn", fmt.Sprintf("With a limit of %s nothing is granted until owners have released %s units.", amount(limit), amount(sem.Used-limit))}
	}
	waiting, err := n.Describe(ctx, name, client.IncludeWaiters(), client.AfterToken(0), client.MaxItems(pageSize))
	if err != nil {
		return note{"warn", "The queue cannot be read now: " + sentence(visible(err.Error()))}
	}
	free, granted := limit-sem.Used, uint64(0)
	for i := range waiting.Waiters {
		if waiting.Waiters[i].Count > free {
			break
		}
		free -= waiting.Waiters[i].Count
		granted++
	}
	more := ""
	if granted == pageSize && sem.NumWaiters > pageSize {
		more = " or more"
	}
	return note{"good", fmt.Sprintf("With a limit of %s, %s%s of %s would be granted at once.", amount(limit), group(granted), more, plural(sem.NumWaiters, "waiter"))}
}

func aboutRollout(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, rolloutPage, "/rollout", "name", "location")
	if err != nil {
		return nil, err
	}
	t.page.Tables = t.page.Tables[:1]
	if l := q.Get("location"); l != "" {
		rows := t.page.Tables[0].Rows[:0:0]
		for _, r := range t.page.Tables[0].Rows {
			if r.Key == l {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			return nil, &notFoundError{"The rollout has no such location."}
		}
		t.page.Tables[0].Rows = rows
		t.page.Tables[0].Title = "Location that is meant"
	}
	return t, nil
}

func aboutLocation(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	if q.Get("location") == "" {
		return nil, &badRequestError{"The address names no location. Choose one on the rollout's page."}
	}
	return aboutRollout(ctx, v, q)
}

func aboutVersion(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := aboutLocation(ctx, v, q)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(q.Get("version"))
	t.ask = &askForm{Label: "Version to go back to", Field: "version", Value: text, Hint: "A version of the location's history, which is on this page."}
	history, err := historyTable(ctx, rollout.OpenReader(t.node, nameOf(q)), q.Get("location"))
	if err != nil {
		return nil, err
	}
	t.page.Tables = append(t.page.Tables, history)
	if text == "" {
		return t, nil
	}
	if t.id, err = strconv.ParseUint(text, 10, 64); err != nil || t.id == 0 {
		return nil, &badRequestError{"That is no version. Give one of the location's history."}
	}
	t.q.Set("version", text)
	return t, nil
}

func aboutProcess(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, processPage, "/process", "name")
	if err == nil {
		t.page.Tables = t.page.Tables[:1]
	}
	return t, err
}

func aboutMember(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, processPage, "/process", "name", "session")
	if err != nil {
		return nil, err
	}
	t.id = number64(q.Get("session"))
	members := &t.page.Tables[0]
	for _, r := range members.Rows {
		if strings.HasPrefix(r.Key, strconv.FormatUint(t.id, 10)+" ") {
			members.Rows, members.Title = []row{r}, "Member that is evicted"
			t.page.Tables = t.page.Tables[:1]
			return t, nil
		}
	}
	return nil, &notFoundError{"This session is not a member any more."}
}

func aboutInstance(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	name := q.Get("instance")
	t, err := about(ctx, v, q, overviewPage, "", "instance")
	if err != nil {
		return nil, err
	}
	s, err := v.admin.Status(ctx)
	if err != nil {
		return nil, err
	}
	rows := instanceTable(s).Rows
	for i, x := range presentInstances(s) {
		if x.Name == name {
			t.path, t.back, t.name = "/", "/", visible(name)
			t.page.Name, t.page.Facts = visible(name), nil
			t.page.Tables = []table{instanceTable(s)}
			t.page.Tables[0].Rows = rows[i : i+1]
			t.page.Tables[0].Title = "Instance that is meant"
			return t, nil
		}
	}
	return nil, &notFoundError{"The cluster has no such instance."}
}

// serveAction shows the dry run of an action, or does it.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request, v *viewer) {
	verb := r.PathValue("verb")
	a, ok := actions[verb]
	if !ok {
		c.fail(w, r, v, &notFoundError{"There is no such action."})
		return
	}
	q := r.URL.Query()
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			c.refuseForm(w, r, err)
			return
		}
		q = r.PostForm
	}
	s := c.sessionOf(r)
	if r.Method == http.MethodPost && (s == nil || subtle.ConstantTimeCompare([]byte(q.Get("csrf")), []byte(s.csrf)) != 1) {
		c.refuse(w, r, http.StatusForbidden, "Not done", "This form is too old, or was not made for you. Load its page again.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	t, err := a.prepare(ctx, v, q)
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	if s == nil { // forms are bound to a session also while nobody has to log in
		var cookie string
		if cookie, s = c.sessions.begin(c.viewers, v); s == nil {
			c.fail(w, r, v, client.ErrClientClosed)
			return
		}
		c.setCookie(w, cookie, int(sessionMost/time.Second))
	}
	p := a.page(verb, t, s.csrf)
	if r.Method != http.MethodPost {
		c.render(w, r, v, p)
		return
	}
	reason := strings.TrimSpace(q.Get("reason"))
	switch {
	case t.ask != nil && t.ask.Value == "":
		p.Notes = append(p.Notes, note{"bad", "Not done: " + t.ask.Label + " is missing."})
	case reason == "":
		p.Notes = append(p.Notes, note{"bad", "Not done: say why. The reason is kept in the audit log."})
	case len(reason) > protocol.MaxDescriptionLen:
		p.Notes = append(p.Notes, note{"bad", fmt.Sprintf("Not done: the reason has %d bytes, and at most %d are allowed.", len(reason), protocol.MaxDescriptionLen)})
	case strings.TrimSpace(q.Get("confirm")) != strings.TrimSpace(t.name):
		p.Notes = append(p.Notes, note{"bad", "Not done: the name that you typed is another one. Type it as this page shows it."})
	default:
		c.perform(w, r, v, a, t, reason)
		return
	}
	if p.Confirm != nil {
		p.Confirm.Reason = reason
	}
	p.Status = http.StatusUnprocessableEntity
	c.render(w, r, v, p)
}

// page is the dry run with its forms.
func (a *action) page(verb string, t *target, csrf string) *page {
	p := *t.page
	p.Title, p.Lead, p.Actions, p.Filter, p.Figure = a.title, a.consequence, nil, nil, nil
	p.Notes = append([]note{{"warn", "This is a dry run: nothing has been changed yet."}}, p.Notes...)
	var fields []hidden
	for k := range t.q {
		fields = append(fields, hidden{k, t.q.Get(k)})
	}
	if t.ask != nil {
		ask := *t.ask
		ask.Action = "/action/" + verb
		for _, f := range fields {
			if f.Name != ask.Field {
				ask.Hidden = append(ask.Hidden, f)
			}
		}
		p.Ask = &ask
	}
	if t.ask == nil || t.ask.Value != "" {
		p.Confirm = &confirmForm{Action: "/action/" + verb, Title: a.title, Name: t.name, CSRF: csrf, Back: t.back, Hidden: fields}
	}
	return &p
}

// perform does an action that was confirmed.
func (c *Console) perform(w http.ResponseWriter, r *http.Request, v *viewer, a action, t *target, reason string) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	done, err := a.do(ctx, v, t, reason)
	who := ""
	if x, bad := v.identity(ctx); bad == nil {
		who = x.Identity
	}
	c.cfg.Log.Info("console: action", "action", a.title, "node", t.path, "object", t.name, "identity", who, "reason", reason, "error", err)
	p := &page{Section: t.page.Section, Node: t.page.Node, Title: a.title, Name: t.page.Name, Crumbs: t.page.Crumbs, Actions: []link{{"Back to it", t.back}}}
	switch {
	case err == nil:
		p.Notes = []note{{"good", done}}
	case errors.Is(err, client.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		p.Status = http.StatusServiceUnavailable
		p.Notes = []note{{"bad", "It is not known whether this was done: no instance has answered in time. Look at the object before you try again."}}
	default:
		var text string
		p.Status, _, text = explain(err)
		p.Notes = []note{{"bad", "Not done: " + visible(text)}}
	}
	c.render(w, r, v, p)
}
