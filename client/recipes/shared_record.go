package recipes

import (
	"context"
	"encoding/json"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// sharedRecord is a record of a recipe: the data of a persistent semaphore of that name, as JSON.
type sharedRecord[T any] struct {
	s    *client.Session
	name string
	kind string // of the recipe, for errors
	// limit is the semaphore's; one with another limit is not of this kind.
	limit uint64
	// valid reports whether the data are a record of this kind.
	valid func(*T) bool
}

// read is a strict read. Without a semaphore the version is 0, and the record zero.
func (x sharedRecord[T]) read(ctx context.Context) (record T, version uint64, err error) {
	sem, err := describe(ctx, x.s, x.name)
	switch {
	case refused(err, client.ErrNotFound):
		return record, 0, nil
	case err != nil:
		return record, 0, err
	case sem.Ephemeral || sem.Limit != x.limit || json.Unmarshal(sem.Data, &record) != nil || !x.valid(&record):
		return record, 0, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the semaphore has another use; give the %s another name, or delete the semaphore", x.kind)
	}
	return record, sem.Version, nil
}

// change changes the record by compare-and-set, until change says that there is nothing to change.
// exists is false where there is no record yet.
func (x sharedRecord[T]) change(
	ctx context.Context, change func(record *T, exists bool) (changed bool, err error),
) error {
	for {
		record, version, err := x.read(ctx)
		if err != nil {
			return err
		}
		if changed, err := change(&record, version > 0); err != nil || !changed {
			return err
		}
		data, err := json.Marshal(record)
		if err != nil {
			return err
		}
		if version == 0 {
			err = x.s.Create(ctx, x.name, x.limit, data)
		} else {
			_, err = x.s.Update(ctx, x.name, data, client.IfVersion(version))
		}
		if !overtaken(err) {
			return driver.WithoutOp(err)
		}
	}
}

// await reads the record, and again after each change, until done says so.
func (x sharedRecord[T]) await(ctx context.Context, done func(record *T) (bool, error)) error {
	ctx, end := contexts.Both(x.s.Context(), ctx)
	defer end()
	for _, err := range x.s.Node().Watch(ctx, x.name) { // from before the first read on
		if err != nil {
			return driver.WithoutOp(err)
		}
		record, _, err := x.read(ctx)
		if err != nil {
			return err
		}
		if ok, err := done(&record); ok || err != nil {
			return err
		}
	}
	return interrupted(ctx)
}
