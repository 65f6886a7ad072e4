package audit

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Severity of an event, that of the meta shard's events.
type Severity = meta.Severity

const (
	Low    = meta.SeverityLow // also the zero value
	Medium = meta.SeverityMedium
	High   = meta.SeverityHigh
)

// Field is one further member of an event's object.
type Field struct {
	Key   string
	Value any // string, bool, an integer, or []string
}

// Fields are members by key and value in turn, as attributes of package slog.
func Fields(pairs ...any) []Field {
	list := make([]Field, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, Field{pairs[i].(string), pairs[i+1]})
	}
	return list
}

// Event is something that happened. Title is a constant word, like join_instance. Message is a
// sentence. Initiator is the identity that caused it, or empty for the cluster itself. A zero Time
// is replaced by the log's clock.
type Event struct {
	Title     string
	Severity  Severity
	Message   string
	Initiator string
	Time      time.Time
	Fields    []Field
}

// reservedKeys are the members of each object; fields must not have their names.
var reservedKeys = []string{"title", "message", "severity", "initiator", "time", "id"}

// TimeFormat is ISO 8601 in milliseconds, in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// id identifies an event for ever: the instance, the number of its start, and a count from 1 since
// the start. Missing counts are lost events.
type id struct{ instance, generation, count uint64 }

func (i id) String() string { return fmt.Sprintf("%d.%d.%d", i.instance, i.generation, i.count) }

// appendLine appends the event as one line of JSON, its members in this order: title, message,
// severity, initiator, time, id, fields. Whatever the text, the result is one line of valid JSON.
func appendLine(b []byte, e *Event, i id) []byte {
	if e.Initiator == "" {
		e.Initiator = "cluster"
	}
	b = append(b, '{')
	for _, f := range []Field{{"title", e.Title}, {"message", e.Message},
		{"severity", string(cmp.Or(e.Severity, Low))}, {"initiator", e.Initiator},
		{"time", e.Time.UTC().Format(TimeFormat)}, {"id", i.String()}} {
		b = appendField(b, f)
	}
	for _, f := range e.Fields {
		if slices.Contains(reservedKeys, f.Key) {
			f.Key += "_"
		}
		if s, ok := f.Value.(string); ok {
			f.Key, f.Value = member(f.Key, s)
		}
		b = appendField(b, f)
	}
	b[len(b)-1] = '}'
	return append(b, '\n')
}

// member returns the key and the form of a text. Invalid UTF-8 is written as base64 under another
// key, because two names must not look the same.
func member(key, text string) (string, string) {
	if utf8.ValidString(text) {
		return key, text
	}
	return key + "_base64", base64.StdEncoding.EncodeToString([]byte(text))
}

// Name is a name that a client chose, for other logs: it is written there as in an audit log.
func Name(key string, name []byte) slog.Attr { return slog.String(member(key, string(name))) }

func appendField(b []byte, f Field) []byte {
	b = append(appendString(b, f.Key), ':')
	switch v := f.Value.(type) {
	case string:
		b = appendString(b, v)
	case []string:
		b = append(b, '[')
		for i, s := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, s)
		}
		b = append(b, ']')
	default:
		if text, err := json.Marshal(v); err == nil {
			b = append(b, text...)
		} else {
			b = appendString(b, fmt.Sprint(v))
		}
	}
	return append(b, ',')
}

// appendString appends text as JSON. It escapes control characters, those of terminals included,
// and marks that change the direction of text: logs are read on terminals.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r < ' ', r >= 0x7f && r < 0xa0, r == 0x61c, r >= 0x200e && r <= 0x200f, r >= 0x2028 && r <= 0x202e,
			r >= 0x2066 && r <= 0x2069:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
