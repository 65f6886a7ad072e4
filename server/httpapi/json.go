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
)

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
