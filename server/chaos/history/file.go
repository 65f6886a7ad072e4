package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
)

// fileLine is a line of a history's file: a call that begins (its Result is empty), or one that is
// over. Both have the number of the call in their file.
type fileLine struct {
	ID uint64 `json:"id"`
	Op
}

// Writer writes a history. A line is one write, so a process that is killed leaves all that it had
// begun to write. It is not safe for concurrent use.
type Writer struct {
	w      io.Writer
	serial uint64
}

func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Begin records a call before it is made, and returns its number.
func (w *Writer) Begin(op Op) (id uint64, err error) {
	w.serial++
	op.Return, op.Result = Never, ""
	return w.serial, w.put(fileLine{ID: w.serial, Op: op})
}

// End records the outcome of the call with a number.
func (w *Writer) End(id uint64, op Op) error { return w.put(fileLine{ID: id, Op: op}) }

func (w *Writer) put(l fileLine) error {
	b, err := json.Marshal(&l)
	if err != nil {
		return err
	}
	_, err = w.w.Write(append(b, '\n'))
	return err
}

// Read reads what a Writer wrote. A call that is not over has an unknown outcome. An incomplete
// last line is left out: its writer was killed.
func Read(r io.Reader) ([]Op, error) {
	var order []uint64
	all := map[uint64]Op{}
	lines := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var l fileLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d of the history is damaged: %w", n, err)
		}
		if _, ok := all[l.ID]; !ok {
			order = append(order, l.ID)
		}
		l.Result = cmp.Or(l.Result, Unknown)
		all[l.ID] = l.Op
	}
	out := make([]Op, 0, len(order))
	for _, id := range order {
		out = append(out, all[id])
	}
	return out, nil
}
