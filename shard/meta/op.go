package meta

// MaxOps is how many op ids are remembered. An entry may come again, or late, within seconds;
// commands are rare. Part of format version 1.
const MaxOps = 8192

// opEntry is the remembered result of one op.
type opEntry struct {
	number uint64 // its key in opOrder
	result Result
}

func (s *State) opResult(op OpID) (Result, bool) {
	if op == (OpID{}) {
		return Result{}, false
	}
	e, ok := s.ops.get(string(op[:]))
	return e.result, ok
}

func (s *State) rememberOp(op OpID, res Result) {
	if op == (OpID{}) {
		return
	}
	s.opCount++
	s.ops = s.ops.put(string(op[:]), opEntry{s.opCount, res})
	s.opOrder = s.opOrder.put(s.opCount, string(op[:]))
	if s.opOrder.len() > MaxOps {
		for number, oldest := range s.opOrder.all() {
			s.ops = s.ops.without(oldest)
			s.opOrder = s.opOrder.without(number)
			break
		}
	}
}
