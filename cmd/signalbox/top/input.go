package top

import (
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// Action tells the loop what to do after a key.
type Action uint8

// The actions.
const (
	Nothing Action = iota
	Quit
	Suspend
	Repaint
	Refresh
	Open // ask for [View.Detail]
)

// Press handles a key.
func (v *View) Press(k terminal.Key) Action {
	switch {
	case k == terminal.KeyInterrupt:
		return Quit
	case k == terminal.KeySuspend:
		return Suspend
	case k == terminal.KeyRepaint:
		return Repaint
	case v.editing:
		v.edit(k)
		return Nothing
	case v.help:
		v.help = false
		if k == 'q' {
			return Quit
		}
		return Nothing
	case v.detail != nil:
		return v.pressDetail(k)
	}
	ids := v.find(v.list)
	page := max(1, v.Height/2)
	switch k {
	case 'q':
		return Quit
	case '?', 'h':
		v.help = true
	case '/':
		v.editing = true
	case terminal.KeyEscape:
		v.filter = ""
	case terminal.KeyTab, terminal.KeyLeft, terminal.KeyRight:
		v.list = (v.list + 1) % lists
	case terminal.KeyUp, 'k':
		v.move(v.list, ids, v.at0[v.list]-1)
	case terminal.KeyDown, 'j':
		v.move(v.list, ids, v.at0[v.list]+1)
	case terminal.KeyPageUp:
		v.move(v.list, ids, v.at0[v.list]-page)
	case terminal.KeyPageDown:
		v.move(v.list, ids, v.at0[v.list]+page)
	case terminal.KeyHome:
		v.move(v.list, ids, 0)
	case terminal.KeyEnd:
		v.move(v.list, ids, len(ids)-1)
	case 's':
		v.order[v.list] = (v.order[v.list] + 1) % len(v.orders(v.list))
		v.move(v.list, v.ids(v.list), 0)
	case ' ', 'p':
		v.paused = !v.paused
	case 'r':
		return Refresh
	case terminal.KeyEnter:
		if len(ids) > 0 {
			v.detail = &detail{id: v.selected[v.list]}
			return Open
		}
	}
	return Nothing
}

func (v *View) orders(list int) []order {
	if list == listSessions {
		return sessionOrders
	}
	return semaphoreOrders
}

// maxFilter bounds the filter, in runes.
const maxFilter = 60

func (v *View) edit(k terminal.Key) {
	switch {
	case k == terminal.KeyEnter:
		v.editing = false
	case k == terminal.KeyEscape:
		v.editing, v.filter = false, ""
	case k == terminal.KeyClear:
		v.filter = ""
	case k == terminal.KeyBackspace:
		_, n := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-n]
	case k >= ' ' && utf8.RuneCountInString(v.filter) < maxFilter:
		v.filter += string(rune(k))
	}
}

func (v *View) pressDetail(k terminal.Key) Action {
	d := v.detail
	page := max(1, v.Height-4)
	switch k {
	case 'q':
		return Quit
	case terminal.KeyEscape, terminal.KeyEnter, terminal.KeyBackspace, terminal.KeyLeft:
		v.detail = nil
	case terminal.KeyUp, 'k':
		d.first--
	case terminal.KeyDown, 'j':
		d.first++
	case terminal.KeyPageUp:
		d.first -= page
	case terminal.KeyPageDown, ' ':
		d.first += page
	case terminal.KeyHome:
		d.first = 0
	case terminal.KeyEnd:
		d.first = len(d.lines)
	case 'r':
		return Open
	}
	d.first = max(0, min(d.first, len(d.lines)-1))
	return Nothing
}
