// In which order are systems measured, and how are failures handled?

package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxOtherLoad is the part of the machine that others may use before the report says so.
const maxOtherLoad = 0.05

// Run compares. Failed measurements are in the report and in its Err; Run's own error is of a cause
// that kept it from beginning, or of ctx.
func Run(ctx context.Context, s Settings) (*Report, error) {
	s.Dir = cmp.Or(s.Dir, ".")
	dir, err := os.MkdirTemp(s.Dir, ".bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the servers' data: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	r := &Report{Format: format, Begun: time.Now().Truncate(time.Second), Versions: map[string]string{},
		Rounds: s.Rounds, Seconds: s.Length.Seconds(), Quick: s.Quick}
	if r.Machine, err = ThisMachine(dir); err != nil {
		return nil, err
	}
	if r.Machine.Disk == "tmpfs" || r.Machine.Fsync < 0.005 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("the data folders are on %s, where a sync costs %s ms: durable servers cannot be compared there; "+
				"give a folder on a disk",
				r.Machine.Disk, digits(r.Machine.Fsync)))
	}
	systems := s.present(ctx, r)
	begun, usedBefore, ownBefore := time.Now(), machineCPU(), ownCPU()
	for round := range s.Rounds {
		for _, b := range benchmarks {
			if len(s.Only) > 0 && !slices.Contains(s.Only, b.name) || b.slow && round >= s.SlowRounds {
				continue
			}
			if err := s.runRound(ctx, b, round, systems, dir, r); err != nil {
				return nil, err
			}
		}
	}
	r.Took = time.Since(begun).Seconds()
	if used := machineCPU(); used > 0 {
		r.Others = max(0, (used-usedBefore-(ownCPU()-ownBefore)).Seconds()/r.Took)
	}
	if r.Others > maxOtherLoad*float64(r.Machine.Cores) {
		r.Notes = append(r.Notes,
			fmt.Sprintf("other programs used %s of %d cores during the run: the figures are too low, and the rounds differ",
				digits(r.Others), r.Machine.Cores))
	}
	r.Measurements.sort()
	return r, nil
}

// runRound measures each system once, or in turns, the last one first in every other round and
// turn. What fails is in the report, and has no more turns. The error is of ctx.
func (s *Settings) runRound(ctx context.Context, b benchmark, round int, systems map[string]System, dir string, r *Report) error {
	var visits []*trial
	for _, name := range b.subjects {
		if systems[name] != nil {
			visits = append(visits, &trial{Settings: s, system: systems[name], round: round, values: map[string][]float64{}})
		}
	}
	turns := 1
	if b.turns {
		short := *s
		turns, short.Length = s.Turns, s.Length/time.Duration(s.Turns)
		for _, v := range visits {
			v.Settings = &short
		}
	}
	if round%2 == 1 {
		slices.Reverse(visits)
	}
	for turn := range turns {
		for _, v := range visits {
			if v.failed {
				continue
			}
			name := v.system.Name()
			v.dir = filepath.Join(dir, fmt.Sprintf("%d-%s-%d-%s", round, b.name, turn, slug(name)))
			if err := v.run(ctx, b); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				v.failed = true
				r.Failures = append(r.Failures,
					Failure{Subject: name, Benchmark: b.name, Round: round, Why: strings.ReplaceAll(err.Error(), "\n", " ")})
				s.logf("round %d  %-10s %-16s failed: %v", round+1, b.name, name, err)
			}
		}
		slices.Reverse(visits)
	}
	for _, v := range visits {
		v.addTo(r)
	}
	return nil
}

// present finds out which subjects can be measured, and names the others.
func (s *Settings) present(ctx context.Context, r *Report) map[string]System {
	systems := map[string]System{}
	for _, name := range subjects {
		i := slices.IndexFunc(s.Systems, func(x System) bool { return x.Name() == name })
		if i < 0 {
			r.Missing = append(r.Missing, Missing{name, "this program has no client for it; make bench runs the one that has"})
			continue
		}
		v, err := s.Systems[i].Version(ctx)
		if err != nil {
			r.Missing = append(r.Missing, Missing{name, err.Error()})
			s.logf("%s is missing: %v", name, err)
			continue
		}
		r.Versions[name], systems[name] = v, s.Systems[i]
	}
	return systems
}

func (s *Settings) logf(form string, args ...any) { logf(s.Log, form, args...) }

func slug(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}
