package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Severity of an event.
type Severity uint8

// Severities.
const (
	Low Severity = iota
	Medium
	High
)

func (s Severity) String() string {
	switch s {
	case Low:
		return "low"
	case Medium:
		return "medium"
	}
	return "high"
}

// Field is one further member of an event's object.
type Field struct {
	Key   string
	Value any // string, bool, an integer, or []string
}

// Event is something that happened. Title is a constant word, join_instance; Message a sentence for
// people; Initiator who caused it, an identity or empty for the cluster itself. Time is the log's
// if zero.
type Event struct {
	Title     string
	Severity  Severity
	Message   string
	Initiator string
	Time      time.Time
	Fields    []Field
}

// Own members of each object; a field may not have their names.
var reservedKeys = []string{"title", "message", "severity", "initiator", "time", "id"}

// TimeFormat is how times are written: ISO 8601 in milliseconds, in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// id names an event for ever: the instance, how many times it has started, and a count that starts
// at 1 with each start. Counts that are missing were lost.
type id struct{ instance, generation, count uint64 }

func (i id) String() string { return fmt.Sprintf("%d.%d.%d", i.instance, i.generation, i.count) }

// appendLine appends the event as one line of JSON. Members stand in one order: title, message,
// severity, initiator, time, id, then the fields in theirs. Whatever is in the text, the line stays
// one line of valid JSON.
func appendLine(b []byte, e *Event, i id) []byte {
	if e.Initiator == "" {
		e.Initiator = "cluster"
	}
	b = append(b, '{')
	for _, f := range []Field{{"title", e.Title}, {"message", e.Message}, {"severity", e.Severity.String()}, {"initiator", e.Initiator},
		{"time", e.Time.UTC().Format(TimeFormat)}, {"id", i.String()}} {
		b = appendField(b, f)
	}
	for _, f := range e.Fields {
		if slices.Contains(reservedKeys, f.Key) {
			f.Key += "_"
		}
		b = appendField(b, f)
	}
	b[len(b)-1] = '}'
	return append(b, '\n')
}

func appendField(b []byte, f Field) []byte {
	b = append(appendString(b, f.Key), ':')
	switch v := f.Value.(type) {
	case string:
		b = appendString(b, v)
	case bool:
		b = strconv.AppendBool(b, v)
	case int:
		b = strconv.AppendInt(b, int64(v), 10)
	case int64:
		b = strconv.AppendInt(b, v, 10)
	case uint8:
		b = strconv.AppendUint(b, uint64(v), 10)
	case uint32:
		b = strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		b = strconv.AppendUint(b, v, 10)
	default:
		b = appendJSON(b, v)
	}
	return append(b, ',')
}

// appendJSON is for lists and for what nobody thought of.
func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return appendString(b, fmt.Sprint(v))
	}
	return append(b, text...)
}

// appendString appends text as JSON. Control characters are escaped, those of terminals included,
// and so are the marks that turn the direction of text: a line is read on terminals.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x200e && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
