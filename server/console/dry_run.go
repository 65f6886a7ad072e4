package console

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

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

	// seen is what the operator decides by, with its values as the dry run shows them. The form
	// carries it, and is refused if a value is another one when the form arrives. Nothing that
	// changes all the time is part of it: a busy object could not be operated then.
	seen url.Values
}

func (t *target) saw(what, value string) {
	t.seen.Set(what, strings.ReplaceAll(value, narrowBlank, " "))
}

// differs says what is not as it was when the form was made; empty: nothing.
func (t *target) differs(seen string) string {
	before, err := url.ParseQuery(seen)
	if err != nil || len(before) != len(t.seen) {
		return "this form is of another kind. Look at the page again before you confirm."
	}
	for _, what := range slices.Sorted(maps.Keys(t.seen)) {
		if was, is := before.Get(what), t.seen.Get(what); was != is {
			return fmt.Sprintf("%s was %s when this form was made, and is %s now. Look again before you confirm.",
				what, visible(was), is)
		}
	}
	return ""
}

// about reads the page of an action's object.
func about(
	ctx context.Context, v *viewer, q url.Values, read pageFunc, path string, keys ...string,
) (*target, error) {
	p, err := read(ctx, v, q)
	if err != nil {
		return nil, err
	}
	if p.missing {
		return nil, &notFoundError{"It does not exist any more."}
	}
	for i := range p.Tables {
		p.Tables[i].dropActions()
	}
	t := &target{q: url.Values{}, path: p.Node, page: p, name: p.Name, seen: url.Values{}}
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

// only leaves one row of one of the page's tables, and drops the other tables; false: it has no such
// row.
func (t *target) only(id, title string, is func(key string) bool) bool {
	list := t.page.table(id)
	if list == nil {
		return false
	}
	i := slices.IndexFunc(list.Rows, func(r row) bool { return is(r.Key) })
	if i < 0 {
		return false
	}
	list.Rows, list.Title, list.Count, list.First, list.Next = list.Rows[i:i+1], title, "", "", ""
	t.page.Tables = []table{*list}
	return true
}

func aboutSession(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, sessionPage, "/session", "id")
	if err != nil {
		return nil, err
	}
	t.id = number64(q.Get("id"))
	t.saw("the session's state", t.page.fact("state"))
	return t, nil
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
	queue := *t.page.table("queue")
	if !t.only("owners", "Owner that loses its units", func(key string) bool {
		return key == strconv.FormatUint(token, 10)
	}) {
		return nil, &notFoundError{"This owner has released what it held."}
	}
	t.saw("the number of units", t.page.Tables[0].Rows[0].Cells[ownerUnits].Text)
	t.page.Tables = append(t.page.Tables, queue)
	return t, nil
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
	t.saw("the limit", amount(sem.Limit))
	t.saw("the time of its creation", clockText(sem.CreatedAt))
	text := strings.TrimSpace(q.Get("limit"))
	t.ask = &askForm{
		Label: "New limit", Field: "limit", Value: text,
		Hint: "Units, 1 to max. The limit is " + amount(sem.Limit) + " now.",
	}
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
		return note{Tone: "warn",
			Text: fmt.Sprintf("With a limit of %s nothing is granted until owners have released %s units.",
				amount(limit), amount(sem.Used-limit))}
	}
	waiting, err := n.Describe(ctx, name, client.IncludeWaiters(), client.AfterToken(0), client.MaxItems(pageSize))
	if err != nil {
		return note{Tone: "warn", Text: "The queue cannot be read now: " + sentence(visibleText(err.Error()))}
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
	return note{Tone: "good", Text: fmt.Sprintf("With a limit of %s, %s%s of %s would be granted at once.",
		amount(limit), group(granted), more, plural(sem.NumWaiters, "waiter"))}
}

// aboutPause is about a rollout or a location of it. A pause is not refused because the rollout has
// moved on: an operator who stops it wants it to stop where it is.
func aboutPause(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, rolloutPage, "/rollout", "name", "location")
	if err != nil {
		return nil, err
	}
	l := q.Get("location")
	if l == "" {
		t.page.Tables = t.page.Tables[:1]
		return t, nil
	}
	t.back = address("/rollout", "node", t.path, "name", q.Get("name"), "location", l)
	if !t.only("locations", "Location that is meant", func(key string) bool { return key == l }) {
		return nil, &notFoundError{"The rollout has no such location."}
	}
	return t, nil
}

// aboutResume is about a rollout that goes on with the versions there are.
func aboutResume(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := aboutPause(ctx, v, q)
	if err == nil {
		t.saw("the newest version", t.page.fact("last"))
	}
	return t, err
}

func aboutLocation(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	l := q.Get("location")
	if l == "" {
		return nil, &badRequestError{"The address names no location. Choose one on the rollout's page."}
	}
	t, err := aboutPause(ctx, v, q)
	if err == nil {
		t.saw("the version of "+visible(l), t.page.Tables[0].Rows[0].Cells[locationTarget].Text)
	}
	return t, err
}

func aboutPromotion(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := aboutLocation(ctx, v, q)
	if err != nil {
		return nil, err
	}
	track, l := rollout.NewReader(t.node, nameOf(q)), q.Get("location")
	s, err := track.Describe(ctx, rollout.IncludeConfig())
	if err != nil {
		return nil, err
	}
	version, from, err := promotable(ctx, track, s, l)
	if err != nil {
		return nil, err
	}
	t.saw("the version that it would take", versionCell(version).Text)
	if version == 0 {
		t.page.note("warn", "Nothing newer waits to be promoted, as far as this console sees.")
	} else {
		t.page.note("good", fmt.Sprintf("%s would take version %d, %s.", visible(l), version, from))
	}
	return t, nil
}

// promotable is the version that a promotion would give to a location, and where it comes from; 0:
// none is known. The rollout decides: this is what the dry run shows.
func promotable(
	ctx context.Context, track *rollout.Track, s *rollout.Status, location string,
) (version uint64, from string, err error) {
	i := slices.IndexFunc(s.Locations, func(l rollout.LocationStatus) bool { return l.Name == location })
	if i < 0 || s.Locations[i].Excluded {
		return 0, "", nil
	}
	at := &s.Locations[i]
	if at.Stable != 0 {
		return at.Target, "which its share has", nil
	}
	for i--; i >= 0; i-- {
		before := &s.Locations[i]
		if before.Excluded || before.State == rollout.Skipped {
			continue
		}
		list, err := track.History(ctx, before.Name)
		if err != nil {
			return 0, "", err
		}
		for _, h := range slices.Backward(list) {
			if h.Skip {
				continue
			}
			if h.Version <= at.Target {
				break
			}
			return h.Version, "the newest of " + visible(before.Name), nil
		}
		return 0, "", nil
	}
	if at.GateFor > at.Target {
		return at.GateFor, "for which its gate runs", nil
	}
	if s.Config != nil && s.Config.Source == rollout.Published && s.Last > at.Target {
		return s.Last, "the newest that was published", nil
	}
	return 0, "", nil
}

func aboutVersion(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := aboutLocation(ctx, v, q)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(q.Get("version"))
	t.ask = &askForm{
		Label: "Version to go back to", Field: "version", Value: text,
		Hint: "A version of the location's history, which is on this page.",
	}
	history, err := historyTable(ctx, rollout.NewReader(t.node, nameOf(q)), q.Get("location"))
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
		t.saw("the round", t.page.fact("epoch"))
	}
	return t, err
}

func aboutMember(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, processPage, "/process", "name", "session")
	if err != nil {
		return nil, err
	}
	t.id = number64(q.Get("session"))
	session := strconv.FormatUint(t.id, 10) + " "
	if !t.only("members", "Member that is evicted", func(key string) bool { return strings.HasPrefix(key, session) }) {
		return nil, &notFoundError{"This session is not a member any more."}
	}
	_, order, _ := strings.Cut(t.page.Tables[0].Rows[0].Key, " ")
	t.saw("the number of its membership", order)
	return t, nil
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
	for _, x := range presentInstances(s) {
		if x.Name != name {
			continue
		}
		t.path, t.back, t.name = "/", "/", visible(name)
		t.page.Name, t.page.Facts, t.page.Tables = visible(name), nil, []table{instanceTable(s)}
		t.only("instances", "Instance that is meant", func(key string) bool { return key == x.UUID })
		t.saw("the instance's state", instanceState(&x).Text)
		return t, nil
	}
	return nil, &notFoundError{"The cluster has no such instance."}
}
