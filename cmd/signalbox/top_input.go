package main

import (
	"unicode/utf8"
)

// topAction is what the loop does after a key.
type topAction uint8

const (
	topNothing topAction = iota
	topQuit
	topSuspend
	topRepaint
	topRefresh
	topOpen // what is asked about v.detail.id
)

// press handles a key.
func (v *topView) press(k key) topAction {
	switch {
	case k == keyInterrupt:
		return topQuit
	case k == keySuspend:
		return topSuspend
	case k == keyRepaint:
		return topRepaint
	case v.editing:
		v.edit(k)
		return topNothing
	case v.help:
		v.help = false
		if k == 'q' {
			return topQuit
		}
		return topNothing
	case v.detail != nil:
		return v.pressDetail(k)
	}
	ids := v.find(v.list)
	page := max(1, v.height/2)
	switch k {
	case 'q':
		return topQuit
	case '?', 'h':
		v.help = true
	case '/':
		v.editing = true
	case keyEscape:
		v.filter = ""
	case keyTab, keyLeft, keyRight:
		v.list = (v.list + 1) % lists
	case keyUp, 'k':
		v.move(v.list, ids, v.at0[v.list]-1)
	case keyDown, 'j':
		v.move(v.list, ids, v.at0[v.list]+1)
	case keyPageUp:
		v.move(v.list, ids, v.at0[v.list]-page)
	case keyPageDown:
		v.move(v.list, ids, v.at0[v.list]+page)
	case keyHome:
		v.move(v.list, ids, 0)
	case keyEnd:
		v.move(v.list, ids, len(ids)-1)
	case 's':
		v.order[v.list] = (v.order[v.list] + 1) % len(v.orders(v.list))
		v.move(v.list, v.ids(v.list), 0)
	case ' ', 'p':
		v.paused = !v.paused
	case 'r':
		return topRefresh
	case keyEnter:
		if len(ids) > 0 {
			v.detail = &topDetail{id: v.selected[v.list]}
			return topOpen
		}
	}
	return topNothing
}

func (v *topView) orders(list int) []topOrder {
	if list == listSessions {
		return sessionOrders
	}
	return semaphoreOrders
}

// maxFilter bounds the filter, in runes.
const maxFilter = 60

func (v *topView) edit(k key) {
	switch {
	case k == keyEnter:
		v.editing = false
	case k == keyEscape:
		v.editing, v.filter = false, ""
	case k == keyClear:
		v.filter = ""
	case k == keyBackspace:
		_, n := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-n]
	case k >= ' ' && utf8.RuneCountInString(v.filter) < maxFilter:
		v.filter += string(rune(k))
	}
}

func (v *topView) pressDetail(k key) topAction {
	d := v.detail
	page := max(1, v.height-4)
	switch k {
	case 'q':
		return topQuit
	case keyEscape, keyEnter, keyBackspace, keyLeft:
		v.detail = nil
	case keyUp, 'k':
		d.first--
	case keyDown, 'j':
		d.first++
	case keyPageUp:
		d.first -= page
	case keyPageDown, ' ':
		d.first += page
	case keyHome:
		d.first = 0
	case keyEnd:
		d.first = len(d.lines)
	case 'r':
		return topOpen
	}
	d.first = max(0, min(d.first, len(d.lines)-1))
	return topNothing
}
