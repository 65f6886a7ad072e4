package rollout

import (
	"errors"
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Refusals of a track, for errors.Is. They come with the server's sentence.
var (
	// ErrFenced: another registration has the instance's id. Stop, or register again.
	ErrFenced = errors.New("another registration has this instance id")

	// ErrAlreadyRegistered: another live session has the id.
	ErrAlreadyRegistered = errors.New("another live session has this instance id")

	// ErrUnknownLocation: the track's config has no such location.
	ErrUnknownLocation = errors.New("no such location")

	// ErrStaleReport: a later report of this incarnation is known.
	ErrStaleReport = errors.New("a later report is known")
)

// refusals are those of a track that have an error of their own.
var refusals = map[protocol.Refusal]error{
	protocol.RefusalFenced:            ErrFenced,
	protocol.RefusalAlreadyRegistered: ErrAlreadyRegistered,
	protocol.RefusalUnknownLocation:   ErrUnknownLocation,
	protocol.RefusalStaleReport:       ErrStaleReport,
}

// asRefusal marks an error that a track's refusal is.
func asRefusal(err error) error {
	if is := refusals[protocol.RefusalOf(err)]; is != nil {
		return fmt.Errorf("%w: %w", is, err)
	}
	return err
}

// Codes of reports that have a meaning of their own.
const (
	CodeNone        = "" // of a report that has nothing to say about its target yet
	CodeOK          = "OK"
	CodeSourceError = "SOURCE_ERROR" // the version could not be had from its source: re-elected after a while, by what the config says
)

type codedError struct {
	code string
	err  error
}

func (c *codedError) Error() string { return c.err.Error() }
func (c *codedError) Unwrap() error { return c.err }

// Code marks an error of an update with a code. A code that the config lists as explicit
// (TimestampOutOfRange by default) says that the version is bad for everyone: the location takes
// the next one at once, and later locations never get this one. A code is 1 to 128 printable bytes.
func Code(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

func codeOf(err error) string {
	var c *codedError
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &c) && c.code != "" && c.code != CodeOK:
		return printable(c.code, protocol.MaxTrackName)
	}
	return CodeSourceError
}

// printable cuts text to what a report may carry: valid UTF-8 without control characters.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
