package chaos

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
)

// historyLine is a line of a history's file: a call that begins (its Result is empty), or one that is
// over. Both have the number of the call in their file.
type historyLine struct {
	ID uint64 `json:"id"`
	historyOp
}

// historyWriter writes a history. A line is one write, so a process that is killed leaves all that it had
// begun to write. It is not safe for concurrent use.
type historyWriter struct {
	w      io.Writer
	serial uint64
}

func newHistoryWriter(w io.Writer) *historyWriter { return &historyWriter{w: w} }

// Begin records a call before it is made, and returns its number.
func (w *historyWriter) Begin(op historyOp) (id uint64, err error) {
	w.serial++
	op.Return, op.Result = neverReturned, ""
	return w.serial, w.put(historyLine{ID: w.serial, historyOp: op})
}

// End records the outcome of the call with a number.
func (w *historyWriter) End(id uint64, op historyOp) error {
	return w.put(historyLine{ID: id, historyOp: op})
}

func (w *historyWriter) put(l historyLine) error {
	b, err := json.Marshal(&l)
	if err != nil {
		return err
	}
	_, err = w.w.Write(append(b, '\n'))
	return err
}

// readHistory reads what a historyWriter wrote. A call that is not over has an unknown outcome. An incomplete
// last line is left out: its writer was killed.
func readHistory(r io.Reader) ([]historyOp, error) {
	var order []uint64
	all := map[uint64]historyOp{}
	lines := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var l historyLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d of the history is damaged: %w", n, err)
		}
		if _, ok := all[l.ID]; !ok {
			order = append(order, l.ID)
		}
		l.Result = cmp.Or(l.Result, resultUnknown)
		all[l.ID] = l.historyOp
	}
	out := make([]historyOp, 0, len(order))
	for _, id := range order {
		out = append(out, all[id])
	}
	return out, nil
}
