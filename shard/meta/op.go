package meta

// MaxOps is how many op ids are remembered. An entry may come again, or late, within seconds;
// commands are rare. Part of format version 1.
const MaxOps = 8192

// opEntry is the remembered result of one op.
type opEntry struct {
	number uint64 // its key in opOrder
	result Result
}

// opMemory remembers the results of the last ops.
type opMemory struct {
	// Invariant: ops and opOrder are inverse to one another, and hold at most MaxOps.
	ops     tree[string, opEntry]
	opOrder tree[uint64, string]
	opCount uint64
}

func (m *opMemory) opResult(op OpID) (Result, bool) {
	if op == (OpID{}) {
		return Result{}, false
	}
	e, ok := m.ops.get(string(op[:]))
	return e.result, ok
}

func (m *opMemory) rememberOp(op OpID, res Result) {
	if op == (OpID{}) {
		return
	}
	m.opCount++
	m.ops = m.ops.put(string(op[:]), opEntry{m.opCount, res})
	m.opOrder = m.opOrder.put(m.opCount, string(op[:]))
	if m.opOrder.len() > MaxOps {
		for number, oldest := range m.opOrder.all() {
			m.ops = m.ops.without(oldest)
			m.opOrder = m.opOrder.without(number)
			break
		}
	}
}
