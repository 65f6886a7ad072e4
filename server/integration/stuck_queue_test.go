package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestStuckQueueIsShown: a queue that cannot move shows in the metrics, by its shard and by its
// name, until the limit is raised.
func TestStuckQueueIsShown(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	a, b := c.session(node, 1), c.session(node, 2)
	bucket := c.bucket(node, "listeners")
	c.must(protocol.KindCreate, bucket, &protocol.Create{Head: c.head(a.Session), Name: []byte("listeners"), Limit: 3}, nil)
	c.must(protocol.KindAcquire, bucket, &protocol.Acquire{Head: c.head(a.Session), Name: []byte("listeners"), Count: 1}, nil)
	c.must(protocol.KindAcquire, bucket,
		&protocol.Acquire{Head: c.head(b.Session), Name: []byte("listeners"), Count: 3, Timeout: protocol.Forever},
		nil)
	resize := func(limit uint64) {
		c.must(protocol.KindResize, bucket, &protocol.Resize{Head: c.head(a.Session), Name: []byte("listeners"), Limit: limit}, nil)
	}
	shown := func() (stuck int, named bool) {
		text := scrape(s)
		for _, d := range s.Serving.Shards.All() {
			stuck += strings.Count(text, fmt.Sprintf("signalbox_shard_stuck_queues{shard=\"%d\"} 1\n", d.ID()))
		}
		return stuck, strings.Contains(text, `signalbox_semaphore_stuck{node="/default",semaphore="listeners"} 1`)
	}
	for _, x := range []struct {
		limit uint64
		stuck int
	}{{2, 1}, {3, 0}} {
		resize(x.limit)
		if stuck, named := shown(); stuck != x.stuck || named != (x.stuck > 0) {
			t.Errorf("with limit %d there are %d stuck queues, by name %v", x.limit, stuck, named)
		}
	}
}
