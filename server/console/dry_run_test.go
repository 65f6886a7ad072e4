package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// opened is the form of an action, filled in.
func (s *site) opened(address, name string) (path string, form url.Values) {
	s.t.Helper()
	page := s.get(address)
	page.wants(s.t, 200, "This is a dry run")
	path, form = page.form(s.t)
	form.Set("reason", "host is broken")
	form.Set("confirm", name)
	return path, form
}

// refusedOnce posts a form that has become old, and then the one that the answer has.
func (s *site) refusedOnce(path string, form url.Values, why, done string) {
	s.t.Helper()
	again := s.post(path, form)
	again.wants(s.t, 409, why, "Look again before you confirm", "host is broken")
	path, fresh := again.form(s.t)
	fresh.Set("reason", "host is broken")
	fresh.Set("confirm", form.Get("confirm"))
	s.post(path, fresh).wants(s.t, 200, done)
}

// TestResizeOfWhatWasSeen: a form does not change a limit that somebody else has changed since.
func TestResizeOfWhatWasSeen(t *testing.T) {
	s := openSite(t, nil)
	other := s.session()
	if err := other.Create(t.Context(), "slots", 2, nil); err != nil {
		t.Fatal(err)
	}
	path, form := s.opened(actionURL("resize", "node", "/default", "name", encodeName("slots"), "limit", "7"), "slots")
	if err := other.Resize(t.Context(), "slots", 5); err != nil {
		t.Fatal(err)
	}
	bare := url.Values{}
	for k := range form {
		bare[k] = form[k]
	}
	bare.Del("seen")
	s.post(path, bare).wants(t, 409, "of another kind")
	s.refusedOnce(path, form, "the limit was 2 when this form was made, and is 5 now", "The limit is 7.")
	if sem, err := other.Node().Describe(t.Context(), "slots"); err != nil || sem.Limit != 7 {
		t.Errorf("the semaphore is %+v, %v", sem, err)
	}
}

// TestKillOfWhatWasSeen: a session is in the state that its form shows.
func TestKillOfWhatWasSeen(t *testing.T) {
	s := openSite(t, nil)
	c, err := client.Dial(t.Context(), s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	victim, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.FormatUint(victim.ID(), 10)
	path, form := s.opened(actionURL("kill-session", "node", "/default", "id", id), id)
	c.CloseWithoutRelease()
	n := s.session().Node()
	await.True(t, "a detached session", func() bool {
		x, err := admin.OfNode(n).DescribeSession(t.Context(), victim.ID())
		if err != nil {
			t.Fatal(err)
		}
		return !x.Attached
	})
	s.refusedOnce(path, form, "the session&#39;s state was attached when this form was made, and is detached now", "The session is killed.")
}

// TestRolloutMovedOn: an action on a rollout is about the versions that its form shows.
func TestRolloutMovedOn(t *testing.T) {
	s := openSite(t, nil)
	owner := s.session()
	track := rollout.NewTrack(owner, "geo/base")
	locations := []rollout.Location{{Name: "SAS"}, {Name: "MAN", Delay: time.Hour}}
	if _, err := track.Create(t.Context(), rollout.Config{Source: rollout.Published, Locations: locations}); err != nil {
		t.Fatal(err)
	}
	leaders := make(map[string]*rollout.Instance)
	for _, at := range []string{"SAS", "MAN"} {
		x, err := rollout.NewTrack(s.session(), "geo/base").Register(t.Context(),
			rollout.Registration{ID: at + "-1", Location: at, Role: rollout.LeaderRole})
		if err != nil {
			t.Fatal(err)
		}
		leaders[at] = x
	}
	published := uint64(40)
	publish := func() { // a version that SAS takes at once
		t.Helper()
		published++
		if _, err := track.Publish(t.Context(), published, []byte("x")); err != nil {
			t.Fatal(err)
		}
		await.Seen(t, fmt.Sprintf("version %d at SAS", published), func() (uint64, bool) {
			target, err := leaders["SAS"].GetTargetState(t.Context(), nil, false)
			if err != nil {
				t.Fatal(err)
			}
			return target.Version, target.Version == published
		})
		report := &rollout.Report{Current: published, Target: published, Code: rollout.CodeOK}
		if _, err := leaders["SAS"].GetTargetState(t.Context(), report, false); err != nil {
			t.Fatal(err)
		}
	}
	at := func(verb string, pairs ...string) string {
		return actionURL(verb, append([]string{"node", "/default", "name", encodeName("geo/base")}, pairs...)...)
	}
	publish()
	publish()

	s.get(at("promote", "location", "MAN")).wants(t, 200, "MAN would take version 42, the newest of SAS.")
	path, form := s.opened(at("promote", "location", "MAN"), "geo/base")
	publish()
	s.refusedOnce(path, form, "the version that it would take was 42 when this form was made, and is 43 now", "The location is promoted.")

	path, form = s.opened(at("rollback", "location", "SAS", "version", "42"), "geo/base")
	publish()
	s.refusedOnce(path, form, "the version of SAS was 43 when this form was made, and is 44 now", "The location is rolled back.")

	path, form = s.opened(at("pause"), "geo/base")
	if _, err := track.Publish(t.Context(), 50, nil); err != nil {
		t.Fatal(err)
	}
	s.post(path, form).wants(t, 200, "It is paused.") // a stop is not held up

	path, form = s.opened(at("resume"), "geo/base")
	if _, err := track.Publish(t.Context(), 51, nil); err != nil {
		t.Fatal(err)
	}
	s.refusedOnce(path, form, "the newest version was 50 when this form was made, and is 51 now", "It goes on.")
}

// member takes part in rounds, and agrees at once.
type member struct{ process.BaseHandler }

func (member) Prepare(*process.Round) error      { return nil }
func (member) Coordinate(r *process.Round) error { return r.Complete(nil) }
func (member) Process(*process.Request) error    { return nil }
func (member) Complete(*process.Round)           {}

// TestProcessMovedOn: an action on a process is about the round and the membership that its form
// shows.
func TestProcessMovedOn(t *testing.T) {
	s := openSite(t, nil)
	join := func(x *client.Session) *process.Membership {
		t.Helper()
		p, err := process.Join(t.Context(), x, "queue", member{}, process.Options{Synchronous: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Leave(context.WithoutCancel(t.Context())) })
		return p
	}
	first, second := s.session(), s.session()
	join(first)
	p := join(second)
	queue := []string{"node", "/default", "name", encodeName("queue")}
	s.get(address("/process", queue...)).wants(t, 200, "Force a round", "Evict", "coordinator")

	path, form := s.opened(actionURL("force-round", queue...), "queue")
	join(s.session())
	s.refusedOnce(path, form, "the round was 2 when this form was made, and is 3 now", "A new round starts.")

	evict := actionURL("evict", append(queue, "session", strconv.FormatUint(second.ID(), 10))...)
	path, form = s.opened(evict, "queue")
	if err := p.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.post(path, form).wants(t, 404, "is not a member any more")
	join(second)
	s.refusedOnce(path, form, "the number of its membership was 2 when this form was made, and is 4 now", "The member is evicted.")
}
