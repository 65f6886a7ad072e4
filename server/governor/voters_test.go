package governor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// candidates reads "1*msk 2spb 3msk! 4x": an id, * with a vote, + chosen to get one, a failure
// domain DC=, then ! going offline, - being expelled, ? not ready.
func candidates(t testing.TB, text string) (list []Candidate) {
	for word := range strings.FieldsSeq(text) {
		var c Candidate
		rest := strings.TrimLeft(word, "0123456789")
		if _, err := fmt.Sscan(word[:len(word)-len(rest)], &c.Instance); err != nil {
			t.Fatalf("%q: %v", word, err)
		}
		c.Ready = true
		for _, mark := range "*+!-?" {
			if !strings.ContainsRune(rest, mark) {
				continue
			}
			rest = strings.ReplaceAll(rest, string(mark), "")
			switch mark {
			case '*':
				c.Voter, c.Votes, c.Ready = true, true, false
			case '+':
				c.Voter, c.Ready = true, false
			case '!':
				c.Departure, c.Ready = Pausing, false
			case '-':
				c.Departure, c.Ready = BeingExpelled, false
			case '?':
				c.Ready = false
			}
		}
		if rest != "" {
			c.Domain = []meta.Label{{Key: "DC", Value: rest}}
		}
		list = append(list, c)
	}
	return list
}

func TestVoters(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
	}{
		{"none", "", "[]"},
		{"one", "1*", "[1]"},
		{"two", "1* 2", "[1 2]"},
		{"three", "1* 2* 3", "[1 2 3]"},
		{"four", "1* 2* 3* 4", "[1 2 3]"},
		{"five", "1* 2* 3* 4 5", "[1 2 3 4 5]"},
		{"six", "1* 2* 3* 4* 5* 6", "[1 2 3 4 5]"},
		{"grown at once", "1* 2 3 4 5 6", "[1 2 3 4 5]"},
		{"an instance that is not ready waits", "1* 2? 3", "[1 3]"},

		{"offline, with a spare", "1* 2*! 3* 4", "[1 3 4]"},
		{"offline, without", "1* 2*! 3*", "[1 2 3]"},
		{"offline, the spare not ready", "1* 2*! 3* 4?", "[1 2 3]"},
		{"offline, more than enough", "1* 2*! 3* 4*", "[1 3 4]"},
		{"all offline", "1*! 2*! 3*!", "[1 2 3]"},
		{"two offline, one spare", "1*! 2*! 3* 4", "[2 3 4]"},
		{"back again", "1 2* 3* 4*", "[2 3 4]"},
		{"back before the spare has it", "1* 2* 3* 4*", "[1 2 3]"},

		{"expelled, with a spare", "1*- 2* 3* 4", "[2 3 4]"},
		{"expelled, without", "1*- 2* 3*", "[2 3]"},
		{"expelled, of two", "1*- 2*", "[2]"},
		{"expelled, the last", "1*-", "[1]"},
		{"all expelled", "1*- 2*- 3*-", "[3]"},
		{"of expelled ones the voter stays longest", "1*- 2+-", "[1]"},
		{"the expelled before the offline", "1*! 2*- 3* 4", "[1 3 4]"},
		{"six to four", "1* 2* 3* 4*- 5*- 6", "[1 2 3]"},

		{"farthest first", "1*msk 2msk 3spb 4arb", "[1 3 4]"},
		{"a better one replaces", "1*msk 2*msk 3*spb 4arb", "[2 3 4]"},
		{"as good a one does not", "1*msk 2*spb 3*arb 4msk", "[1 2 3]"},
		{"replaced by the farthest", "1*msk 2*spb 3*arb! 4msk 5arb", "[1 2 4 5]"},
		{"two sites and an arbiter", "1msk 2msk 3msk 4msk 5spb 6spb 7spb 8spb 9arb", "[1 2 5 6 9]"},
		{"a site is lost", "1*msk 2*msk 3msk 4msk 5*spb! 6*spb! 7spb! 8spb! 9*arb", "[1 2 3 4 9]"},
		{"and comes back", "1*msk 2*msk 3*msk 4*msk 5spb 6spb 7spb 8spb 9*arb", "[3 4 5 6 9]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(Voters(candidates(t, c.in))); got != c.want {
				t.Errorf("%s: voters %s, want %s", c.in, got, c.want)
			}
		})
	}
}

// TestVotersStable: the choice is the same again once it was followed, in whatever order, one
// change at a time.
func TestVotersStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "instances")
		var list []Candidate
		for id := range n {
			c := Candidate{Instance: uint64(id + 1), Voter: rapid.Bool().Draw(t, "voter")}
			for _, key := range []string{"DC", "RACK"} {
				if v := rapid.SampledFrom([]string{"", "A", "B", "C"}).Draw(t, key); v != "" {
					c.Domain = append(c.Domain, meta.Label{Key: key, Value: v})
				}
			}
			c.Votes = c.Voter && rapid.Bool().Draw(t, "votes")
			c.Departure = rapid.SampledFrom([]Departure{Staying, Staying, Staying, Pausing, BeingExpelled}).Draw(t, "leaving")
			c.Ready = c.Departure == Staying && rapid.Bool().Draw(t, "ready")
			list = append(list, c)
		}
		had := slices.ContainsFunc(list, func(c Candidate) bool { return c.Voter })
		for range 100 {
			want := Voters(list)
			if had && len(want) == 0 {
				t.Fatalf("nobody votes any more: %+v", list)
			}
			var differ []int
			for i, c := range list {
				if c.Voter != slices.Contains(want, c.Instance) {
					differ = append(differ, i)
				}
				if !c.Voter && slices.Contains(want, c.Instance) && !c.Ready {
					t.Fatalf("instance %d is not ready and is to vote", c.Instance)
				}
			}
			if len(differ) == 0 {
				return
			}
			i := rapid.SampledFrom(differ).Draw(t, "next")
			list[i].Voter = !list[i].Voter
		}
		t.Fatalf("no end: %+v", list)
	})
}

// drawDomains draws the failure domains of some instances.
func drawDomains(t *rapid.T, instances int) (list [][]meta.Label) {
	for range instances {
		var domain []meta.Label
		for _, key := range []string{"DC", "RACK", "ROW"} {
			if v := rapid.SampledFrom([]string{"", "A", "B", "C", "D"}).Draw(t, key); v != "" {
				domain = append(domain, meta.Label{Key: key, Value: v})
			}
		}
		list = append(list, domain)
	}
	return list
}

// fullest is how many of the instances the fullest domain of the keys has.
func fullest(domains [][]meta.Label, chosen []int, keys []string) (most int) {
	counts := map[meta.Label]int{}
	for _, i := range chosen {
		for _, l := range domains[i] {
			if slices.Contains(keys, l.Key) {
				counts[l]++
				most = max(most, counts[l])
			}
		}
	}
	return most
}

// TestSurvivableKeys: the keys are those that some choice of voters is spread over, and no other
// key can be added. Such a choice is made.
func TestSurvivableKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		domains := drawDomains(t, rapid.IntRange(3, 9).Draw(t, "instances"))
		voters, most := VoterCount(len(domains)), Tolerance(len(domains))
		// possible tries all choices.
		possible := func(keys []string) bool {
			for set := range 1 << len(domains) {
				var chosen []int
				for i := range domains {
					if set>>i&1 == 1 {
						chosen = append(chosen, i)
					}
				}
				if len(chosen) == voters && fullest(domains, chosen, keys) <= most {
					return true
				}
			}
			return false
		}
		keys := survivableKeys(domains)
		if !possible(keys) {
			t.Fatalf("no voters are spread over %v: %v", keys, domains)
		}
		for _, key := range []string{"DC", "RACK", "ROW"} {
			used := slices.ContainsFunc(domains, func(d []meta.Label) bool {
				return slices.ContainsFunc(d, func(l meta.Label) bool { return l.Key == key })
			})
			if used && !slices.Contains(keys, key) && possible(append(slices.Clone(keys), key)) {
				t.Fatalf("%s is missing in %v: %v", key, keys, domains)
			}
		}
		var list []Candidate
		for i, domain := range domains {
			list = append(list, Candidate{Instance: uint64(i), Domain: domain, Ready: true, Voter: rapid.Bool().Draw(t, "voter")})
		}
		var chosen []int
		for _, id := range Voters(list) {
			chosen = append(chosen, int(id))
		}
		if n := fullest(domains, chosen, keys); n > most {
			t.Fatalf("the voters %v have %d in one domain of %v: %v", chosen, n, keys, domains)
		}
	})
}
