package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Exit codes, the same for every verb. Verbs that run a command pass its exit code on.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotAcquired = 3
	exitLost        = 4
	exitUnreachable = 5
	exitDifference  = 6
)

// usagef makes an error of the command line, with exit code 2.
func usagef(format string, args ...any) error { return settings.Errorf(format, args...) }

// codeError is an error with an exit code. A quiet one is not printed, because the output or a
// child has reported it.
type codeError struct {
	code  int
	err   error
	quiet bool
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// exit prints an error, with a hint if there is one, and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return exitOK
	}
	if readerGone(err) {
		return exitBrokenPipe
	}
	code := a.code(err)
	own := code
	if x, ok := a.exitCodes[code]; ok {
		own = x
	}
	if ce, ok := errors.AsType[*codeError](err); ok && ce.quiet {
		return code
	}
	a.note("%s %s\n", terminal.Paint(a.color(a.stderr), terminal.Red, "signalbox:"), terminal.Sanitize(err.Error()))
	if h := a.hint(err, code); h != "" {
		a.note("  %s\n", h)
	}
	return own
}

// refusalHints are the next steps after a server's refusals. The first row counts that has the
// refusal and the beginning of the verb's path.
var refusalHints = []struct {
	refusal protocol.Refusal
	verb    string
	hint    string
}{
	{protocol.RefusalNoNode, "node ", "List the nodes with `signalbox node ls`."},
	{protocol.RefusalNoNode, "", "List the nodes with `signalbox node ls`; make one with `signalbox node create PATH`."},
	{protocol.RefusalNoLimit, "limit wait",
		"List the rate limits with `signalbox limit ls`; make one with `signalbox limit create NAME --rate N`."},
	{protocol.RefusalNoLimit, "limit create", "Create the resource above it first; list the rate limits with `signalbox limit ls`."},
	{protocol.RefusalNoLimit, "", "List the rate limits with `signalbox limit ls`."},
	{protocol.RefusalHasChildren, "limit ", "See its children with `signalbox limit describe NAME`."},
	{protocol.RefusalOtherVersion, "limit ", "Read it again with `signalbox limit describe NAME`."},
	{protocol.RefusalAlreadyRegistered, "",
		"Take the id over with --takeover, or give this instance another one with --id. " +
			"If the other instance has just ended, run this again in a moment."},
	{protocol.RefusalNoTrack, "rollout publish", hintTrack},
	{protocol.RefusalNoTrack, "rollout follow", hintTrack},
	{protocol.RefusalNoTrack, "rollout generate", hintTrack},
	{protocol.RefusalNoTrack, "", "List the rollouts with `signalbox rollout ls`."},
	{protocol.RefusalNotInHistory, "", hintHistory},
	{protocol.RefusalUnknownVersion, "", hintHistory},
	{protocol.RefusalEphemeral, "",
		"Hold it with `signalbox lock` or --ephemeral; it goes by itself when nobody holds it or waits for it."},
	{protocol.RefusalPersistent, "", "Hold it with `signalbox sem acquire`, or lock another name."},
	{protocol.RefusalNoSemaphore, "config delete", "List what there is with `signalbox config ls`."},
	{protocol.RefusalNoSemaphore, "config ", "Set it with `signalbox config set NAME DATA`."},
	{protocol.RefusalNoSemaphore, "sem acquire", hintCreate},
	{protocol.RefusalNoSemaphore, "sem describe", hintCreate},
	{protocol.RefusalNoSemaphore, "sem resize", hintCreate},
	{protocol.RefusalNoSemaphore, "sem update", hintCreate},
	{protocol.RefusalNoSemaphore, "", "List what there is with `signalbox sem ls`."},
	{protocol.RefusalNoProcess, "", "List the processes with `signalbox process ls`."},
	{protocol.RefusalNotMember, "", "List the members with `signalbox process describe NAME`."},
}

const (
	hintTrack   = "List the rollouts with `signalbox rollout ls`; make one with `signalbox rollout create TRACK`."
	hintHistory = "List a location's versions with `signalbox rollout history TRACK LOCATION`."
	hintCreate  = "Make it with `signalbox sem create NAME --limit N`; list what there is with `signalbox sem ls`."
)

// refusalHint returns the next step after a server's refusal of a verb; empty: unknown.
func refusalHint(err error, verb string) string {
	refusal := protocol.RefusalOf(err)
	for _, h := range refusalHints {
		if refusal == h.refusal && strings.HasPrefix(verb, h.verb) {
			return h.hint
		}
	}
	if strings.HasPrefix(verb, "rollout ") &&
		(errors.Is(err, protocol.StatusNotFound) || errors.Is(err, protocol.StatusPreconditionFailed)) {
		return "Look at the rollout with `signalbox rollout status TRACK --instances`."
	}
	return ""
}
