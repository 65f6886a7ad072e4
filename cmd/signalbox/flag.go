package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/client"
)

// parsedFlag is a flag whose text parse reads. A wrong text is refused as the command line is read.
type parsedFlag[T any] struct {
	text, kind string
	to         *T
	parse      func(text string) (T, error)
}

func (f *parsedFlag[T]) String() string { return f.text }
func (f *parsedFlag[T]) Type() string   { return f.kind }

func (f *parsedFlag[T]) Set(text string) error {
	v, err := f.parse(text)
	if err == nil {
		*f.to, f.text = v, text
	}
	return err
}

// parsedVar makes such a flag. Its value is def's until it is given; an empty def is no value.
func parsedVar[T any](fs *pflag.FlagSet, flag, def string, parse func(text string) (T, error), help string) *T {
	f := &parsedFlag[T]{text: def, kind: "string", to: new(T), parse: parse}
	if def != "" {
		*f.to, _ = parse(def)
	}
	fs.Var(f, flag, help)
	return f.to
}

// optional marks flags without a value of their own: whether they are given counts, so the help
// shows no default.
func optional(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := fs.Lookup(name)
		f.Value, f.DefValue = optionalValue{f.Value}, ""
	}
}

// optionalValue hides the type from pflag, which takes the empty default of a number for a text.
type optionalValue struct{ pflag.Value }

// parseAmount reads a count or a limit; "max" is the largest.
func parseAmount(text string) (uint64, error) {
	if text == "max" {
		return client.Max, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0 to 2^64-1, nor max", text)
	}
	return n, nil
}

// choice is a word of a flag or a file, and its value.
type choice[T comparable] struct {
	word  string
	value T
}

// choices are the values of a small enumeration, in the order in which errors name them.
type choices[T comparable] []choice[T]

// choicesOf are values that know their words.
func choicesOf[T interface {
	comparable
	fmt.Stringer
}](values ...T) choices[T] {
	var list choices[T]
	for _, v := range values {
		list = append(list, choice[T]{v.String(), v})
	}
	return list
}

func (list choices[T]) parse(text string) (v T, err error) {
	var words []string
	for _, c := range list {
		if c.word == text {
			return c.value, nil
		}
		words = append(words, c.word)
	}
	last := len(words) - 1
	return v, fmt.Errorf("%q is unknown; choose %s or %s", text, strings.Join(words[:last], ", "), words[last])
}

func (list choices[T]) word(v T) string {
	for _, c := range list {
		if c.value == v {
			return c.word
		}
	}
	return "unknown"
}

// readDuration reads a duration for every flag and file. A bare number is refused, as its unit
// would be a guess, and so is a negative one.
func readDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write one like 500ms, 10s, 5m or 24h", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("%s is negative; write a duration like 500ms, 10s, 5m or 24h", text)
	}
	return d, nil
}

func duration(flag, text string) (time.Duration, error) {
	d, err := readDuration(text)
	if err != nil {
		err = usagef("--%s %v", flag, err)
	}
	return d, err
}

func durationVar(fs *pflag.FlagSet, to *time.Duration, flag string, def time.Duration, help string) {
	*to = def
	f := fs.VarPF(&parsedFlag[time.Duration]{def.String(), "duration", to, readDuration}, flag, "", help)
	if def == 0 {
		f.DefValue = "0" // not shown
	}
}

// parseSize reads a number of bytes: digits, and KiB, MiB, GiB or TiB, or nothing.
func parseSize(text string) (int64, bool) {
	number, factor := text, int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, factor = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, false
	}
	return n * factor, true
}

// sizeText is a number of bytes for people, in the largest unit of which there is one.
func sizeText(n uint64) string {
	unit, value := "B", float64(n)
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		unit, value = u, value/1024
	}
	if unit == "B" || value >= 10 {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
