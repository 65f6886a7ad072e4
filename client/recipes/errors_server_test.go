package recipes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestErrorsNameTheRecipe: an error names what failed once, however many requests a recipe sends.
func TestErrorsNameTheRecipe(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, closed := session(t, c), session(t, c)
	must(t, closed.Close(ctx))
	must(t, s.Create(ctx, "used", 1, []byte("by others")))
	once := func(s *client.Session, name string) error {
		_, err := recipes.NewOnce(s, name, time.Minute).Run(ctx, nil)
		return err
	}
	meet := func(s *client.Session, name string) error {
		_, err := recipes.NewBarrier(s, name, 2).Wait(ctx, "k", nil)
		return err
	}
	forever, cancel := context.WithCancel(ctx)
	cancel()
	for _, x := range []struct {
		err  error
		is   error
		want string
	}{
		{recipes.NewGate(s, "used").Open(ctx), client.ErrPreconditionFailed, `open "used": `},
		{recipes.NewGate(closed, "gate").Open(ctx), client.ErrSessionClosed, `open "gate": `},
		{recipes.NewGate(closed, "gate").Wait(ctx), client.ErrSessionClosed, `wait for "gate": `},
		{recipes.NewGate(s, "gate").Wait(forever), context.Canceled, `wait for "gate": `},
		{recipes.NewLatch(s, "used", 1).Wait(ctx), client.ErrPreconditionFailed, `wait for "used": `},
		{recipes.NewLatch(closed, "latch", 1).CountDown(ctx, "k"), client.ErrSessionClosed, `count down "latch": `},
		{once(s, "used"), client.ErrPreconditionFailed, `once "used": `},
		{once(closed, "once"), client.ErrSessionClosed, `once "once": `},
		{once(s, ""), client.ErrBadRequest, `once "": `},
		{meet(s, "used"), client.ErrPreconditionFailed, `wait for "used": `},
		{meet(closed, "barrier"), client.ErrSessionClosed, `wait for "barrier": `},
	} {
		if x.err == nil || !errors.Is(x.err, x.is) {
			t.Errorf("%v, want %v", x.err, x.is)
			continue
		}
		text, ok := strings.CutPrefix(x.err.Error(), x.want)
		if !ok || strings.Contains(text, `"`) {
			t.Errorf("the error is %q; it must begin with %q, and name nothing again", x.err, x.want)
		}
	}
}
