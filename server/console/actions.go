package console

import (
	"context"
	"net/url"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// action is something that an operator may do. What it is about is in the query of its address.
type action struct {
	title string // a verb and its object
	// consequence says what happens, as the dry run shows it.
	consequence string
	// prepare reads what the action is about: the dry run. It changes nothing.
	prepare func(ctx context.Context, v *viewer, q url.Values) (*target, error)
	do      doFunc
}

// doFunc does an action that was confirmed. done is a sentence about what has changed.
type doFunc func(ctx context.Context, v *viewer, t *target, reason string) (done string, err error)

const unreachableWarning = "A client that cannot be reached relies on what it held until it reconnects, " +
	"or until its session's timeout is over. Only a resource that checks fencing tokens is safe in that time."

var actions = map[string]action{
	"kill-session": {
		title: "Kill session", prepare: aboutSession,
		consequence: "The session ends. All that it holds is granted to the next waiters at once, " +
			"and its memberships end. " + unreachableWarning,
		do: func(ctx context.Context, _ *viewer, t *target, reason string) (string, error) {
			return "The session is killed.", admin.OfNode(t.node).KillSession(ctx, t.id, reason)
		},
	},
	"force-release": {
		title: "Force release of", prepare: aboutOwner,
		consequence: "The owner loses its units, which are granted to the next waiters at once. " +
			"Its session stays. " + unreachableWarning,
		do: func(ctx context.Context, _ *viewer, t *target, reason string) (string, error) {
			n, err := admin.OfNode(t.node).ForceRelease(ctx, nameOf(t.q), t.id, t.id, reason)
			if err == nil && n == 0 {
				return "This owner has no units any more.", nil
			}
			return "The owner's units are released.", err
		},
	},
	"resize": {
		title: "Resize", prepare: aboutLimit,
		consequence: "A higher limit grants to waiters at once. A lower one takes nothing away: " +
			"nothing is granted until what is held fits.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			return "The limit is " + amount(t.id) + ".", v.withSession(ctx, t.path, func(s *client.Session) error {
				return s.Resize(ctx, nameOf(t.q), t.id, client.Reason(reason))
			})
		},
	},
	"drain-slot": {
		title: "Drain slot", prepare: aboutSlot,
		consequence: "The slot is not granted any more. Who holds it keeps it until it gives it back.",
		do:          markSlot("The slot is drained.", (*client.Session).Drain),
	},
	"undrain-slot": {
		title: "Undrain slot", prepare: aboutSlot,
		consequence: "The slot may be granted again, at once if it is free and somebody waits for it.",
		do:          markSlot("The slot may be granted again.", (*client.Session).Undrain),
	},
	"pause": {
		title: "Pause rollout", prepare: aboutPause,
		consequence: "Targets stay as they are until it is resumed. " +
			"A version that instances report as bad is replaced all the same.",
		do: onTrack("It is paused.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Pause(ctx, false, locationsOf(t.q)...)
		}),
	},
	"resume": {
		title: "Resume rollout", prepare: aboutResume,
		consequence: "It goes on where it was paused.",
		do: onTrack("It goes on.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Resume(ctx, locationsOf(t.q)...)
		}),
	},
	"promote": {
		title: "Promote in rollout", prepare: aboutPromotion,
		consequence: "The location takes the newest version of the location before it, " +
			"without waiting for delay, bake time and gates, once all its leaders have the present one.",
		do: onTrack("The location is promoted.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Promote(ctx, locationsOf(t.q)...)
		}),
	},
	"rollback": {
		title: "Roll back in rollout", prepare: aboutVersion,
		consequence: "The location gets the earlier version at once. " +
			"The version that it leaves is never chosen again. Other locations stay.",
		do: onTrack("The location is rolled back.", func(ctx context.Context, t *target, x *rollout.Track) error {
			return x.Rollback(ctx, t.id, locationsOf(t.q)...)
		}),
	},
	"force-round": {
		title: "Force a round of", prepare: aboutProcess,
		consequence: "A new round starts: after the present one if that is decided, else in its place. " +
			"Members whose session has ended leave.",
		do: func(ctx context.Context, _ *viewer, t *target, reason string) (string, error) {
			return "A new round starts.", process.NewOperator(t.node, nameOf(t.q)).Force(ctx, shortReason(reason))
		},
	},
	"evict": {
		title: "Evict from", prepare: aboutMember,
		consequence: "The membership ends, and a new round of the others starts. " +
			"The session lives on, and its program may join again.",
		do: func(ctx context.Context, _ *viewer, t *target, reason string) (string, error) {
			return "The member is evicted.", process.NewOperator(t.node, nameOf(t.q)).Evict(ctx, t.id, shortReason(reason))
		},
	},
	"drain-member": {
		title: "Drain member of", prepare: aboutMemberOf,
		consequence: "The member says that it drains, with your reason, and callers look elsewhere. It stays registered, " +
			"and may be taken back. Only programs that run with client/discovery or signalbox service register follow.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			who := "an operator"
			if x, err := v.identity(ctx); err == nil && x.Enabled {
				who = x.Identity
			}
			return "The member is asked to drain. The service's page shows when it follows.",
				requestDrain(ctx, v, t, "drained by "+who+": "+reason)
		},
	},
	"undrain-member": {
		title: "Undrain member of", prepare: aboutMemberOf,
		consequence: "The request to drain is taken back, and callers use the member again. " +
			"One that drains because its program ends goes on.",
		do: func(ctx context.Context, v *viewer, t *target, _ string) (string, error) {
			return "The request is taken back. The service's page shows when the member follows.", cancelDrain(ctx, v, t)
		},
	},
	"drain": {
		title: "Drain instance", prepare: aboutInstance,
		consequence: "Leadership and votes move to other instances, and it gets neither again " +
			"until its next start, or until it is undrained.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			_, err := v.admin.WithReason(reason).Drain(ctx, t.q.Get("instance"))
			return "The instance is drained. The overview shows how far that is.", err
		},
	},
	"expel": {
		title: "Expel instance", prepare: aboutInstance,
		consequence: "The instance leaves the cluster for good, and another one takes over its copies. " +
			"To return, it has to join again with an empty folder. No data is lost.",
		do: func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
			_, err := v.admin.WithReason(reason).Expel(ctx, t.q.Get("instance"), false)
			return "The instance is expelled.", err
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

func shortReason(reason string) string { return string(cut([]byte(reason), maxRoundReason)) }

func actionURL(verb string, pairs ...string) string { return address("/action/"+verb, pairs...) }

// offer adds a button to a page if the viewer has the right for it.
func (p *page) offer(ctx context.Context, v *viewer, text, verb string, pairs ...string) {
	if v.mayOperate(ctx, p.Node) {
		p.Actions = append(p.Actions, link{text, actionURL(verb, pairs...)})
	}
}

// mayOperate reports whether the viewer has the right admin on a node, which most actions need. It
// decides what is shown: the server decides what is done.
func (v *viewer) mayOperate(ctx context.Context, path string) bool { return v.may(ctx, "admin", path) }

func (v *viewer) may(ctx context.Context, right, path string) bool {
	who, err := v.identity(ctx)
	return err == nil && may(who, right, path)
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

func onTrack(done string, f func(ctx context.Context, t *target, x *rollout.Track) error) doFunc {
	return func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
		err := v.withSession(ctx, t.path, func(s *client.Session) error {
			return f(ctx, t, rollout.NewTrack(s, nameOf(t.q)).WithReason(reason))
		})
		return done, err
	}
}
