package otelsignalbox_test

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/otelsignalbox"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// observed is the code in the SDK's README.
func observed(ctx context.Context, endpoints []string) (*client.Client, error) {
	observer, err := otelsignalbox.New() // of the global providers
	if err != nil {
		return nil, err
	}
	return client.Open(ctx, client.Config{Endpoints: endpoints, Observer: observer})
}

func TestObservedClient(t *testing.T) {
	srv := servertest.Start(t)
	c, err := observed(t.Context(), []string{srv.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
