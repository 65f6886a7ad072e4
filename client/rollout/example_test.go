package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// An instance in zone-a that serves a file: each version's payload is written to it.
func ExampleFollower() {
	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	f, err := rollout.NewFollower(rollout.FollowerOptions{
		Connect: client.Config{Endpoints: []string{"127.0.0.1:7070"}},
		Node:    "/geo", Track: "geo/base", ID: host, Location: "zone-a", Dir: "/var/lib/geo",
		Update: func(_ context.Context, v rollout.Version) error {
			if len(v.Payload) == 0 {
				return rollout.Code("TimestampOutOfRange", errors.New("an empty version is bad for everyone"))
			}
			return os.WriteFile("/var/lib/geo/data", v.Payload, 0o644)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(f.Run(context.Background()))
}

// Three locations, each 5 s behind the one before it, and a first version for them.
func ExampleTrack_Create() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, "/geo")
	if err != nil {
		log.Fatal(err)
	}
	t := rollout.NewTrack(s, "geo/base")
	_, err = t.Create(ctx, rollout.Config{
		Source:    rollout.Published,
		Locations: []rollout.Location{{Name: "zone-a"}, {Name: "zone-b", Delay: 5 * time.Second}, {Name: "zone-c", Delay: 5 * time.Second}},
	})
	if err != nil {
		log.Fatal(err)
	}
	version, err := t.Publish(ctx, 0, []byte("first"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("published", version)
	for event, err := range t.Watch(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		if e := event.Event; e != nil {
			fmt.Println(e.Kind, e.Location, e.Version, e.Text)
		}
	}
}
