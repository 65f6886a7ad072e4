package recipes

import (
	"context"
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
)

// refused reports whether the server decided about a request, with one of these errors.
func refused(err error, as ...error) bool {
	return driver.Answered(err) && slices.ContainsFunc(as, func(target error) bool { return errors.Is(err, target) })
}

// overtaken reports whether another session was faster with a write: what it wrote decides.
func overtaken(err error) bool {
	return refused(err, client.ErrAlreadyExists, client.ErrPreconditionFailed, client.ErrNotFound)
}

// interrupted is the error of a call whose context ended.
func interrupted(ctx context.Context) error { return driver.Undecided(driver.Interrupted(ctx)) }

// describe is a strict read of a recipe's semaphore. Its errors are bare: the recipe says what failed.
func describe(
	ctx context.Context, s *client.Session, name string, opts ...client.ReadOption,
) (*client.Semaphore, error) {
	opts = append(opts[:len(opts):len(opts)], client.ReadConsistency(client.Strict))
	sem, err := s.Node().Describe(ctx, name, opts...)
	return sem, driver.WithoutOp(err)
}
