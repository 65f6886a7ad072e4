package sdktest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"

	"github.com/ydb-platform/ydb-go-sdk/v3/ratelimiter"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestPythonAcquires: YDB's Python SDK acquires units of a resource, and sees each error as YDB has
// it. It runs in the long form, where the SDK is installed: PYTHON names an interpreter that has
// it, and PYTHONPATH may name its folder.
func TestPythonAcquires(t *testing.T) {
	form.SkipUntil(t, form.Long, "it needs YDB's Python SDK")
	t.Parallel()
	python := func(args ...string) ([]byte, error) {
		return exec.CommandContext(testContext(t), cmp.Or(os.Getenv("PYTHON"), "python3"), args...).CombinedOutput()
	}
	if out, err := python("-c", "import ydb"); err != nil {
		t.Skipf("YDB's Python SDK is not there: %v\n%s", err, out)
	}
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	db := openSDK(t, address)
	node, ctx := sdkNode(t, db), testContext(t)
	for _, x := range []ratelimiter.Resource{drr("fast", 1000, 0, 0.5, 0), drr("slow", 0.01, 0, 0, 0), drr("tree", 10, 0, 0, 0), drr("tree/leaf", 0, 0, 0, 0)} {
		if err := db.Ratelimiter().CreateResource(ctx, node, x); err != nil {
			t.Fatal(err)
		}
	}
	out, err := python("examples/limit/limit.py", "grpc://"+address, node)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = `required: ok
required: ok
required: ok
nothing: ok
used: ok
after what was used, a timeout: TIMEOUT
cancelled: CANCELLED
given up by the client: DEADLINE_EXCEEDED
more than the burst: BAD_REQUEST
too much for any: BAD_REQUEST
no units: BAD_REQUEST
a parent: PRECONDITION_FAILED
no resource: NOT_FOUND
a bad name: BAD_REQUEST
no node: SCHEME_ERROR
again: ok
`
	if string(out) != want {
		t.Errorf("Python sees:\n%s\nwant:\n%s", out, want)
	}
}
