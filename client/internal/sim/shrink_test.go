package sim

import "maps"

// Shrink looks for the smallest run that still violates something. It leaves out whole kinds of
// faults first, then single ones, larger parts of them before smaller ones. It makes at most runs
// runs, and equal inputs give equal results. The options must be those of a run with a violation.
func Shrink(o Options, runs int) (Options, Result) {
	best := Run(o)
	try := func(x Options) bool {
		x.End = best.At + 1_000 // a much later violation is another one, and costs time
		if runs--; runs < 0 {
			return false
		}
		r := Run(x)
		if r.Violation == "" || len(r.Events) >= len(best.Events) {
			return false
		}
		o, best = x, r
		return true
	}
	for f := range faultsCount {
		x := o
		x.Off |= 1 << f
		try(x)
	}
	for size := (len(best.Events) + 1) / 2; size > 0 && runs > 0; {
		shorter := false
		// From the end: leaving out the last events changes nothing before them.
		for to := len(best.Events); to > 0 && runs > 0; to -= size {
			to = min(to, len(best.Events))
			x := o
			x.Drop = maps.Clone(o.Drop)
			if x.Drop == nil {
				x.Drop = map[Event]bool{}
			}
			for _, e := range best.Events[max(to-size, 0):to] {
				x.Drop[e] = true
			}
			shorter = try(x) || shorter
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case !shorter:
			return o, best
		}
	}
	return o, best
}
