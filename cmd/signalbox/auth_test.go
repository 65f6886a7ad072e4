package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestGrantIsPrinted: a grant that was made is printed, also when nothing more can be looked up.
func TestGrantIsPrinted(t *testing.T) {
	for format, want := range map[string]string{
		"table": "billing has the right use at /billing and below\n",
		"jsonl": `{"identity":"billing","path":"/billing","right":"use"}` + "\n",
	} {
		var out, said strings.Builder
		inv := &invocation{app: newApp(t.Context(), nil, &out, &said)}
		inv.values = map[string]string{"output": format}
		err := printGrant(inv, &admin.Right{Identity: "billing", Path: "/billing", Right: "use"},
			func() (bool, bool, error) { return false, false, errors.New("connection lost") })
		inv.flush()
		if err != nil || out.String() != want || !strings.Contains(said.String(), "could not be checked: connection lost\n") {
			t.Errorf("%s: printed %q and %q: %v", format, out.String(), said.String(), err)
		}
	}
}
