package terminal

import "unicode/utf8"

// Key is a key of the terminal: a character, or one of those below.
type Key rune

// The keys that are no characters, and those with characters of their own.
const (
	KeyUp Key = -1 - iota
	KeyDown
	KeyLeft
	KeyRight
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyUnknown // a sequence that means nothing here

	KeyEscape    Key = 0x1b
	KeyEnter     Key = '\r'
	KeyTab       Key = '\t'
	KeyBackspace Key = 0x7f
	KeyInterrupt Key = 3  // ^C
	KeySuspend   Key = 26 // ^Z
	KeyClear     Key = 21 // ^U
	KeyRepaint   Key = 12 // ^L
)

// parseKeys splits what a read of the terminal returned. Terminals send a key's sequence in one
// piece, so an escape at the end is the key Escape.
func parseKeys(b []byte) (keys []Key) {
	for len(b) > 0 {
		if b[0] == 0x1b && len(b) > 2 && (b[1] == '[' || b[1] == 'O') {
			n := 2
			for n < len(b)-1 && b[n] >= 0x20 && b[n] < 0x40 { // parameters
				n++
			}
			keys = append(keys, sequenceKey(b[2:n], b[n]))
			b = b[n+1:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError:
			r = rune(KeyUnknown)
		case r == '\n':
			r = rune(KeyEnter)
		case r == 8:
			r = rune(KeyBackspace)
		}
		keys = append(keys, Key(r))
		b = b[n:]
	}
	return keys
}

// sequenceKey is the key of an escape sequence with these parameters and this last byte.
func sequenceKey(parameters []byte, last byte) Key {
	switch last {
	case 'A':
		return KeyUp
	case 'B':
		return KeyDown
	case 'C':
		return KeyRight
	case 'D':
		return KeyLeft
	case 'H':
		return KeyHome
	case 'F':
		return KeyEnd
	case '~':
		switch string(parameters) {
		case "1", "7":
			return KeyHome
		case "4", "8":
			return KeyEnd
		case "5":
			return KeyPageUp
		case "6":
			return KeyPageDown
		}
	}
	return KeyUnknown
}
