package main

import "unicode/utf8"

// key is a key of the terminal: a character, or one of those below.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyUnknown // a sequence that means nothing here

	keyEscape    key = 0x1b
	keyEnter     key = '\r'
	keyTab       key = '\t'
	keyBackspace key = 0x7f
	keyInterrupt key = 3  // ^C
	keySuspend   key = 26 // ^Z
	keyClear     key = 21 // ^U
	keyRepaint   key = 12 // ^L
)

// parseKeys splits what a read of the terminal returned. Terminals send a key's sequence in one
// piece, so an escape at the end is the key Escape.
func parseKeys(b []byte) (keys []key) {
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
			r = rune(keyUnknown)
		case r == '\n':
			r = rune(keyEnter)
		case r == 8:
			r = rune(keyBackspace)
		}
		keys = append(keys, key(r))
		b = b[n:]
	}
	return keys
}

// sequenceKey is the key of an escape sequence with these parameters and this last byte.
func sequenceKey(parameters []byte, last byte) key {
	switch last {
	case 'A':
		return keyUp
	case 'B':
		return keyDown
	case 'C':
		return keyRight
	case 'D':
		return keyLeft
	case 'H':
		return keyHome
	case 'F':
		return keyEnd
	case '~':
		switch string(parameters) {
		case "1", "7":
			return keyHome
		case "4", "8":
			return keyEnd
		case "5":
			return keyPageUp
		case "6":
			return keyPageDown
		}
	}
	return keyUnknown
}
