package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Version is the version that an update loads.
type Version struct {
	Number     uint64
	Payload    []byte // of a published version
	HasPayload bool
	Generation uint64 // of the location's target
	Attempt    int    // to load this target, from 1

	// Restored: it is the version that this instance served last, read from its folder
	// before any server was asked.
	Restored bool
}

// FollowerOptions configures a Follower.
type FollowerOptions struct {
	// Client is the way to the servers; or, without one, Connect says how to reach them, and Run
	// makes a client of its own, which it closes. With Connect a follower begins to serve what it
	// kept although no server can be reached.
	Client  *client.Client
	Connect client.Config

	Node     string // path of the coordination node
	Track    string // service/cluster
	ID       string // of the instance, its own in the track, such as the host's name
	Location string
	Meta     string // for people

	// Update loads a version, and returns nil when it is served. Its context ends when another
	// version is to be loaded instead: Update must return then. Calls do not overlap. An error made
	// by Code says with a code what is wrong with the version; any other is CodeSourceError. A
	// failed update is tried again.
	Update func(ctx context.Context, v Version) error

	// Dir, if not empty, is a folder of the instance's own where the version that it served last is
	// kept, with its payload. Run loads that first, before any server is asked, and takes the id
	// over from the process that had it before.
	Dir string

	// Takeover evicts, with the first registration, another live session that has the id. Without
	// it, and without a Dir that says that the id is this instance's, Run ends with
	// ErrAlreadyRegistered.
	Takeover bool

	// Manual leaves it to MarkReady to make the instance a leader. Else it becomes one with the
	// first target that it has loaded.
	Manual bool

	// PollEvery is the longest time between two questions for the target; default 10 s. News come
	// sooner, by a watch.
	PollEvery time.Duration

	// RetryMin and RetryMax bound the time between attempts to load a version, which doubles from
	// one to the other; default 1 s and 1 min. Half of it is random.
	RetryMin, RetryMax time.Duration

	Session []client.SessionOption // of the instance's sessions

	// OnChange, if not nil, is called with every change of what State tells, from the goroutine of
	// Run.
	OnChange func(FollowerState)

	Logger *slog.Logger // default: nothing is logged
}

// NewFollower checks the options. Run does the rest.
func NewFollower(o FollowerOptions) (*Follower, error) {
	switch {
	case o.Client == nil && len(o.Connect.Endpoints) == 0:
		return nil, errors.New("follower: give it a client, or endpoints to connect to")
	case o.Update == nil:
		return nil, errors.New("follower: give it an Update function")
	case o.Node == "" || o.Track == "" || o.ID == "" || o.Location == "":
		return nil, errors.New("follower: name node, track, id and location")
	}
	var err error
	millis.Of("poll interval", o.PollEvery, &err)
	if err = checkRetry(o.RetryMin, o.RetryMax, time.Minute, err); err != nil {
		return nil, fmt.Errorf("follower: %w", err)
	}
	o.PollEvery = cmp.Or(o.PollEvery, 10*time.Second)
	o.RetryMin = cmp.Or(o.RetryMin, time.Second)
	o.RetryMax = cmp.Or(o.RetryMax, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("follower: %w", err)
		}
	}
	return &Follower{c: o.Client, o: o, wake: make(chan struct{}, 1), wantLeader: !o.Manual}, nil
}

// checkRetry checks the bounds of a time between attempts; max is what 0 means for most. A failure
// that was found before is passed on.
func checkRetry(least, most, max time.Duration, err error) error {
	millis.Of("least time between attempts", least, &err)
	millis.Of("longest time between attempts", most, &err)
	if most = cmp.Or(most, max); err == nil && least > most {
		err = protocol.Errorf(protocol.StatusBadRequest,
			"least time between attempts is %s, above the longest, %s", least, most)
	}
	return err
}
