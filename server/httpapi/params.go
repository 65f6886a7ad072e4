package httpapi

import (
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// duration reads a parameter of a time, min to max; 0 if it is not given.
func (x *call) duration(key string, min, max, step time.Duration) (time.Duration, error) {
	text := x.query.Get(key)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if _, bare := strconv.Atoi(text); err != nil || bare == nil && text != "0" {
		return 0, badRequest("%s is %q; write a duration with its unit, such as 30s", key, text)
	}
	if d < min || d > max || d%step != 0 {
		return 0, badRequest("%s is %s; it must be %s to %s, in steps of %s", key, d, min, max, step)
	}
	return d, nil
}

// units reads a parameter of a number of units, or max; 0 if it is not given.
func (x *call) units(key string) (uint64, error) {
	text := x.query.Get(key)
	switch text {
	case "":
		return 0, nil
	case "max":
		return client.Max, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, badRequest("%s is %q; give a number from 1 on, or max", key, text)
	}
	return n, nil
}

// readOptions are those of a read.
func (x *call) readOptions() ([]client.ReadOption, error) {
	switch text := x.query.Get(consistency); text {
	case "":
		return nil, nil
	case "strict":
		return []client.ReadOption{client.ReadConsistency(client.Strict)}, nil
	default:
		return nil, badRequest("%s is %q; it can be strict", consistency, text)
	}
}
