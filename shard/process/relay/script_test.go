package relay

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts. Sessions are numbers. Directives:
//
//	relay [payload=n] [pair=n] [entries=n] [receiver=n] [bytes=n]
//	    a leader's new relay
//	round epoch=n stage=(over|early|open) SESSION...
//	pass
//	    each input line is a message:
//	    request FROM TO,TO epoch=n number=n low=n PAYLOAD
//	    reply FROM TO epoch=n number=n PAYLOAD, or refuse
//	    attached SESSION
//	pending
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var r *Relay
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			vals := map[string]string{}
			var words []string
			for _, a := range d.CmdArgs {
				if len(a.Vals) > 0 {
					vals[a.Key] = a.Vals[0]
				} else {
					words = append(words, a.Key)
				}
			}
			switch d.Cmd {
			case "relay":
				r = New(Limits{
					Payload: int(number(vals["payload"])), Pair: int(number(vals["pair"])),
					Entries:  int(number(vals["entries"])),
					Receiver: int(number(vals["receiver"])), Bytes: int(number(vals["bytes"])),
				})
			case "round":
				r.Round(number(vals["epoch"]), map[string]Stage{"early": Preparing, "open": Open}[vals["stage"]],
					numbers(words))
			case "pass":
				for _, line := range strings.Split(d.Input, "\n") {
					runMessage(r, line, &b)
				}
			case "pending":
				entries, bytes := r.Pending()
				fmt.Fprintf(&b, "%d requests, %d bytes, %+v\n", entries, bytes, r.Counters())
			}
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			return b.String()
		})
	})
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func numbers(list []string) (out []uint64) {
	for _, s := range list {
		out = append(out, number(s))
	}
	return out
}

func runMessage(r *Relay, line string, b *strings.Builder) {
	vals := map[string]string{}
	var words []string
	for _, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			vals[k] = v
		} else {
			words = append(words, w)
		}
	}
	text := ""
	if len(words) > 3 {
		text = words[3]
	}
	var out Out
	var err error
	switch words[0] {
	case "request":
		err = r.Request(Request{
			From: number(words[1]), To: numbers(strings.Split(words[2], ",")),
			Epoch: number(vals["epoch"]), Number: number(vals["number"]),
			Low: number(vals["low"]), Payload: []byte(text),
		}, &out)
	case "reply", "refuse":
		err = r.Reply(Reply{
			From: number(words[1]), To: number(words[2]), Epoch: number(vals["epoch"]),
			Number: number(vals["number"]), Payload: []byte(text),
			Refused: words[0] == "refuse",
		}, &out)
	case "attached":
		r.SessionAttached(number(words[1]), &out)
	}
	if err != nil {
		fmt.Fprintf(b, "%s -> %s: %s\n", line, protocol.StatusOf(err), err.(*protocol.Error).Message)
		return
	}
	fmt.Fprintf(b, "%s -> OK\n", line)
	for _, d := range out.Deliveries {
		kind := map[Kind]string{KindRequest: "request", KindReply: "reply", KindRefused: "refused"}[d.Kind]
		fmt.Fprintf(b, "  to %d: %s from %d epoch=%d number=%d low=%d %s\n",
			d.To, kind, d.From, d.Epoch, d.Number, d.Low, d.Payload)
	}
}
