package membership

import (
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestFailuresAreReported: the server takes the report of a failed round whatever the error's text
// is.
func TestFailuresAreReported(t *testing.T) {
	for _, text := range []string{"disk full", "file \xff\xfe", "x" + strings.Repeat("\u00e9", protocol.MaxProcessText), ""} {
		m := New(1, Options{})
		m.HandleRound(0, &protocol.ProcessRound{Name: []byte("p"), Kind: protocol.RoundPrepare, Session: 1, Epoch: 1, Topology: 1,
			Coordinator: 1, Token: 1, Members: []protocol.ProcessMember{{Session: 1, Order: 1}}})
		j, ok := m.NextJob()
		if !ok || j.Kind != JobPrepare {
			t.Fatalf("the first job is %v", j.Kind)
		}
		m.JobDone(0, j, errors.New(text))
		var report *protocol.ProcessFail
		for _, s := range m.Take().Sends {
			if s.Kind == protocol.KindProcessFail {
				report = &protocol.ProcessFail{Session: 1, Name: []byte("p"), Epoch: s.Epoch, Text: s.Text}
			}
		}
		if report == nil {
			t.Fatalf("%q is not reported", text)
		}
		if err := protocol.Validate(report); err != nil || len(report.Text) > protocol.MaxProcessText {
			t.Errorf("%q is reported as %q: %v", text, report.Text, err)
		}
	}
}
