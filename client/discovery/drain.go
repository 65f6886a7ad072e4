package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
)

// DrainPrefix begins the names of the configurations that say which members of a service others
// want to drain. The service's name follows.
const DrainPrefix = "drain/"

// maxDrains is how many members of a service others can drain at once.
const maxDrains = 1000

// drains are the sessions whose members are to drain, by the reason that they show.
type drains struct {
	Drained map[string][]string `json:"drained"`
}

// drainsOf reads a configuration of drains. Malformed data counts as an empty list.
func drainsOf(data []byte) map[uint64]string {
	var d drains
	_ = json.Unmarshal(data, &d)
	sessions := map[uint64]string{}
	for why, list := range d.Drained {
		for _, text := range list {
			if id, err := strconv.ParseUint(text, 10, 64); err == nil && sessions[id] < why {
				sessions[id] = shorten(why, maxWhy)
			}
		}
	}
	return sessions
}

func appendDrains(sessions map[uint64]string) ([]byte, error) {
	d := drains{Drained: map[string][]string{}}
	for id, why := range sessions {
		d.Drained[why] = append(d.Drained[why], strconv.FormatUint(id, 10))
	}
	for _, list := range d.Drained {
		slices.Sort(list)
	}
	return json.Marshal(d)
}

// RequestDrain asks a member that somebody else runs to drain: the one that a session registered.
// Its state becomes draining, with why, of 1 to 200 bytes, as the reason. It stays registered; what
// drains it for good is its own end. It needs the right use.
//
// The request is the configuration drain/SERVICE, which registrations of this package follow; a
// member of another program stays as it is. Sessions that are no members any more are taken from
// it. Errors: client.ErrNotFound if the session is no member; client.ErrBadRequest without a
// reason; those of client.ConfigValue.Set; more than 1,000 members.
func RequestDrain(ctx context.Context, s *client.Session, service string, session uint64, why string) error {
	if why == "" {
		return fmt.Errorf("%w: a drain needs a reason; give one of 1 to %d bytes", client.ErrBadRequest, maxWhy)
	}
	return changeDrain(ctx, s, service, session, why)
}

// CancelDrain takes the request of RequestDrain back. Errors: client.ErrNotFound if nobody has
// asked the member to drain; those of client.ConfigValue.Set.
func CancelDrain(ctx context.Context, s *client.Session, service string, session uint64) error {
	return changeDrain(ctx, s, service, session, "")
}

// changeDrain asks a member to drain, or no longer if why is empty.
func changeDrain(ctx context.Context, s *client.Session, service string, session uint64, why string) error {
	config, reason := s.Config(DrainPrefix+service), fmt.Sprintf("session %d: %s", session,
		cmp.Or(shorten(why, maxWhy), "need not drain any more"))
	for {
		now, err := config.Get(ctx)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return err
		}
		members, err := s.Service(service).List(ctx, client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		before := drainsOf(now.Data)
		sessions := map[uint64]string{}
		for _, m := range members {
			if why := before[m.Session]; why != "" {
				sessions[m.Session] = why
			}
		}
		switch {
		case why == "" && sessions[session] == "":
			return fmt.Errorf("%w: nobody has asked a member with session %d to drain", client.ErrNotFound, session)
		case why == "":
			delete(sessions, session)
		case !slices.ContainsFunc(members, func(m client.Member) bool { return m.Session == session }):
			return fmt.Errorf("%w: session %d is no member of %q", client.ErrNotFound, session, service)
		default:
			sessions[session] = shorten(why, maxWhy)
		}
		if len(sessions) > maxDrains {
			return fmt.Errorf("%d members of %q drain already, which is as many as can at once; end some of them", maxDrains,
				service)
		}
		data, err := appendDrains(sessions)
		if err != nil {
			return err
		}
		_, err = config.Set(ctx, data, client.IfVersion(now.Version), client.Reason(reason))
		if !errors.Is(err, client.ErrPreconditionFailed) {
			return err
		} // somebody was faster
	}
}

// followRequests drains the member while it is asked to. It is tried again where the configuration
// cannot be read: membership does not depend on it.
func (r *Registration) followRequests(ctx context.Context) {
	session := r.Session()
	retry(ctx, func() (progress bool, err error) {
		for v, err := range session.Config(DrainPrefix + r.service).Watch(ctx) {
			if err != nil {
				return progress, err
			}
			progress = true
			why := drainsOf(v.Data)[session.ID()]
			r.observe(func(s *status) { s.requested = why })
		}
		return progress, nil
	})
}
