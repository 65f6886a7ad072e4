package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
)

// durations are the parameters that are times, with their bounds.
var durations = map[string]struct{ min, max, step time.Duration }{
	"wait": {0, maxWait, time.Nanosecond},
	"ttl":  {minTTL, gateway.MaxTimeout, minTTL},
	"hold": {time.Second, 720 * time.Hour, time.Millisecond},
}

// steps say what values a duration has between its bounds.
var steps = map[time.Duration]string{time.Second: ", in whole seconds", time.Millisecond: ", in whole milliseconds"}

// numbers are the parameters that are numbers, with their bounds.
var numbers = map[string]struct{ min, max uint64 }{
	"count": {1, client.Max}, "limit": {1, client.Max}, "units": {1, client.Max}, "priority": {0, 9},
	"token": {1, exact - 1},
}

// checkValue refuses a wrong value of a parameter.
func checkValue(key, text string) error {
	if b, ok := durations[key]; ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			return badRequest("%s is %q; write a duration with its unit, such as 30s", key, text)
		}
		if d < b.min || d > b.max || d%b.step != 0 {
			return badRequest("%s is %s; it must be %s to %s%s", key, d, b.min, b.max, steps[b.step])
		}
	}
	if b, ok := numbers[key]; ok && (text != "max" || b.max != client.Max) {
		if n, err := strconv.ParseUint(text, 10, 64); err != nil || n < b.min || n > b.max {
			return badRequest("%s is %q; give a number from %d to %v", key, text, b.min, count(b.max))
		}
	}
	if key == "leave" && text != "true" {
		return badRequest("leave is %q; it can be true", text)
	}
	if key == consistency && text != "strict" {
		return badRequest("%s is %q; it can be strict", key, text)
	}
	return nil
}

// duration is a parameter of a time; 0 if it is not given.
func (x *call) duration(key string) time.Duration {
	d, _ := time.ParseDuration(x.query.Get(key)) // checked before
	return d
}

// number is a parameter of a number; 0 if it is not given.
func (x *call) number(key string) uint64 {
	text := x.query.Get(key)
	if text == "max" {
		return client.Max
	}
	n, _ := strconv.ParseUint(text, 10, 64) // checked before
	return n
}

// readOptions are those of a read.
func (x *call) readOptions() []client.ReadOption {
	if !x.query.Has(consistency) {
		return nil
	}
	return []client.ReadOption{client.ReadConsistency(client.Strict)}
}

// document is a JSON object.
type document = map[string]any

// exact bounds the numbers that every reader of JSON keeps: tokens, versions and counts of grants
// stay below it.
const exact = 1 << 53

// count is a limit or a number of units.
func count(n uint64) any {
	switch {
	case n == client.Max:
		return "max"
	case n > exact:
		return strconv.FormatUint(n, 10)
	}
	return n
}

// setBytes sets a field of bytes: as text where it is, else under another key.
func setBytes(d document, key string, b []byte) {
	if utf8.Valid(b) {
		d[key] = string(b)
	} else {
		d[key+"_base64"] = base64.StdEncoding.EncodeToString(b)
	}
}

// timeForm is how times are shown, in UTC.
const timeForm = "2006-01-02T15:04:05.000Z"

// timeText is a time for display.
func timeText(t time.Time) string { return t.UTC().Format(timeForm) }

// idText is a session's id. It may be above what numbers of JSON keep, and nothing orders ids.
func idText(id uint64) string { return strconv.FormatUint(id, 10) }

// encode is a JSON object, on one line.
func encode(d document) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(d) // maps of plain values cannot fail
	return b.Bytes()
}

// writeBytes answers with a body.
func writeBytes(w http.ResponseWriter, status int, kind string, b []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
