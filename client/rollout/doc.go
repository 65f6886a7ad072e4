// Package rollout is the SDK of staged rollouts: versions reach the instances of ordered locations
// one location after the other, each some delay behind the one before it.
//
// A program that is an instance runs a [Follower]:
//
//	f, err := rollout.NewFollower(rollout.FollowerOptions{
//		Connect: client.Config{Endpoints: []string{"127.0.0.1:7070"}},
//		Node: "/geo", Track: "geo/base", ID: hostname, Location: "zone-a", Dir: "/var/lib/geo",
//		Update: func(ctx context.Context, v rollout.Version) error { return load(ctx, v.Payload) },
//	})
//	err = f.Run(ctx)
//
// It registers, loads exactly its targets, reports, becomes a leader when it has loaded
// its location's target, tries again with back-off what failed, and goes on with what it has while
// no server can be reached. A version that is bad for everyone is reported by returning
// [Code]("TimestampOutOfRange", err); any other error says that the version could not be had from
// its source.
//
// Who makes versions, and who operates, opens the track on a session:
//
//	t := rollout.NewTrack(session, "geo/base")
//	order := []rollout.Location{{Name: "zone-a"}, {Name: "zone-b", Delay: 5 * time.Second}}
//	_, err = t.Create(ctx, rollout.Config{Source: rollout.Published, Locations: order})
//	version, err := t.Publish(ctx, 0, payload)
//	status, err := t.Describe(ctx)
//
// A [Gatekeeper] runs the checks that a location's config names before it takes a version.
//
// Errors are those of package client; [ErrFenced], [ErrAlreadyRegistered], [ErrUnknownLocation] and
// [ErrStaleReport] are refusals of the track's own.
package rollout
