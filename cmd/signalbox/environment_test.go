package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// TestUnknownVariables: each variable that looks like a setting and is none is named once, with
// what was meant if that can be told.
func TestUnknownVariables(t *testing.T) {
	var said strings.Builder
	a := newApp(t.Context(), nil, nil, &said)
	environ := []string{
		"PATH=/bin", "SIGNALBOX_SERVICE_HOST=10.0.0.1", "SIGNALBOX_PEERS_SERVICE_PORT_RAFT=7071",
		"SIGNALBOX_YDB_LISTEN=127.0.0.1:2136", "SIGNALBOX_PORT=tcp://10.0.0.1:7070", "SIGNALBOX_PORT_7070_TCP_ADDR=10.0.0.1",
	}
	for _, v := range ownVariables {
		environ = append(environ, v+"=1")
	}
	for _, s := range settings.All {
		if !s.FlagOnly {
			environ = append(environ, s.Env()+"=x")
		}
	}
	warnEnvironment(a, environ)
	a.flush()
	if said.Len() > 0 {
		t.Errorf("known variables: %s", said.String())
	}
	a.warned = false
	warnEnvironment(a, []string{"SIGNALBOX_ENDPOINT=x", "SIGNALBOX_TOKENFILE=x", "SIGNALBOX_COLOUR_OF_THE_SKY=x"})
	a.flush()
	want := "signalbox: unknown variable SIGNALBOX_ENDPOINT in the environment is ignored; did you mean SIGNALBOX_ENDPOINTS?\n" +
		"signalbox: unknown variable SIGNALBOX_TOKENFILE in the environment is ignored; did you mean SIGNALBOX_TOKEN_FILE?\n" +
		"signalbox: unknown variable SIGNALBOX_COLOUR_OF_THE_SKY in the environment is ignored\n"
	if said.String() != want {
		t.Errorf("said:\n%swant:\n%s", said.String(), want)
	}
	said.Reset()
	a.warned = false
	warnEnvironment(a, []string{"SIGNALBOX_TOKEN=sbx_secret"})
	a.flush()
	want = "signalbox: SIGNALBOX_TOKEN is no number and is ignored: it holds the fencing token of a lock; " +
		"put a credential into a file, and name the file in SIGNALBOX_TOKEN_FILE\n"
	if said.String() != want {
		t.Errorf("said:\n%swant:\n%s", said.String(), want)
	}
}
