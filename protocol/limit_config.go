package protocol

import "strconv"

// Limits of the resources of rate limits. Rates are in thousandths of a unit per second.
const (
	MaxLimitPath      = 1024
	MaxLimitDepth     = 8
	MaxLimitRate      = 1e15
	MaxLimitBurst     = 3_600_000 // ms of rate
	MaxLimitWeight    = 10_000
	MinLimitLease     = 500          // ms
	MaxLimitLease     = 60_000       // ms
	MaxLimitBurstSize = MaxLimitRate // thousandths of a unit, for any rate and burst

	DefaultLimitBurst = 1_000 // ms of rate
	DefaultLimitLease = 3_000 // ms
)

// LimitConfig is the configuration of a resource of a rate limit. The resource a/b is the child of
// a; a resource without a parent is the root of a tree.
type LimitConfig struct {
	// Rate is in thousandths of a unit per second, and capped by the parent's. 0 admits nothing.
	Rate uint64
	// Unlimited leaves the parent's rate as the only cap; Rate is 0 then. A root needs a rate.
	Unlimited bool
	// Burst is how much may be used at once after a time without use, in ms of the rate; 0 is
	// 1,000. It is at least one unit.
	Burst uint64
	// Weight is the share among the children of a parent, 1 to 10,000; 0 is 1.
	Weight uint32
	// Min is the rate that the resource gets before others share by weight, in thousandths of a unit
	// per second. The children's sum is at most that of their parent; a root has its whole rate.
	Min uint64
	// Lease is how long clients use a rate without asking again, 500 to 60,000 ms; 0 is 3,000. Only
	// a root has one.
	Lease uint64
	// Shadow admits everything at the resource and below it, and counts calls it would deny.
	Shadow bool
	// Floor is the rate that each client uses while it has no lease, in thousandths of a unit per
	// second. It is beyond the limit; 0 denies.
	Floor uint64
	// Foreign is the original configuration of a gateway of another protocol, in its own form, at most
	// MaxForeignLen bytes. The cluster keeps it and does not read it.
	Foreign string
}

func (m *LimitConfig) fields(f *fields) {
	limitRate(f, "config.rate", &m.Rate, "rate")
	f.bool("config.unlimited", &m.Unlimited)
	if m.Unlimited && m.Rate > 0 {
		f.refuse("rate is %s, and the resource has no rate of its own; choose one of them", LimitRate(m.Rate))
	}
	f.millis("config.burst", &m.Burst, "burst", MaxLimitBurst)
	f.uint32("config.weight", &m.Weight)
	if m.Weight > MaxLimitWeight {
		f.refuse("weight is %d; it must be 1 to %d", m.Weight, MaxLimitWeight)
	}
	limitRate(f, "config.min", &m.Min, "min")
	if !m.Unlimited && m.Min > m.Rate {
		f.refuse("min is %s, more than the rate, %s; lower it", LimitRate(m.Min), LimitRate(m.Rate))
	}
	f.uint("config.lease", &m.Lease)
	if m.Lease != 0 && (m.Lease < MinLimitLease || m.Lease > MaxLimitLease) {
		f.refuse("lease is %d ms; it must be %d to %d", m.Lease, MinLimitLease, MaxLimitLease)
	}
	f.bool("config.shadow", &m.Shadow)
	limitRate(f, "config.floor", &m.Floor, "floor")
	f.text("config.foreign", &m.Foreign, "foreign settings", MaxForeignLen)
	if m.Rate > MaxLimitBurstSize/m.BurstOrDefault()*1000 {
		f.refuse("rate times burst is more than %s; lower the burst", LimitUnits(MaxLimitBurstSize))
	}
}

// Validate checks each field. What the resources of a tree mean together is for the tree to check.
func (m *LimitConfig) Validate() error { f := checker(); m.fields(&f); return f.err() }

// BurstOrDefault is the burst in ms of the rate.
func (m *LimitConfig) BurstOrDefault() uint64 {
	if m.Burst == 0 {
		return DefaultLimitBurst
	}
	return m.Burst
}

func limitRate(f *fields, field string, v *uint64, what string) {
	f.uint(field, v)
	if *v > MaxLimitRate {
		f.refuse("%s is %s; at most %s are allowed", what, LimitRate(*v), LimitRate(MaxLimitRate))
	}
}

// LimitUnits writes an amount of thousandths of a unit, as in "1 unit" and "0.5 units".
func LimitUnits(amount uint64) string {
	if amount == 1000 {
		return "1 unit"
	}
	return limitNumber(amount) + " units"
}

// LimitRate writes a rate of thousandths of a unit per second, as in "0.5/s".
func LimitRate(rate uint64) string { return limitNumber(rate) + "/s" }

func limitNumber(v uint64) string {
	s := strconv.FormatUint(v/1000, 10)
	if v %= 1000; v > 0 {
		digits := strconv.FormatUint(1000+v, 10)[1:]
		for digits[len(digits)-1] == '0' {
			digits = digits[:len(digits)-1]
		}
		s += "." + digits
	}
	return s
}

// LimitRoot is the first segment of a resource's path, which names its tree.
func LimitRoot[T ~string | ~[]byte](path T) T {
	for i := range len(path) {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return path
}

// ValidateLimitPath checks the path of a resource: 1 to 8 segments joined by "/", each of letters,
// digits, ".", "_", "-", ":" and "#", none of them empty, "." or "..", at most 1,024 bytes in all.
func ValidateLimitPath(path []byte) error {
	if len(path) == 0 || len(path) > MaxLimitPath {
		return Errorf(StatusBadRequest, "resource path is %d bytes long; it must be 1 to %d, as in api/tenant-a",
			len(path), MaxLimitPath)
	}
	for i, c := range path {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == '-', c == ':', c == '#', c == '/':
		default:
			return Errorf(StatusBadRequest,
				"resource path %q has the illegal character %q at byte %d; letters, digits and ._-:# are allowed between '/'",
				path, c, i)
		}
	}
	depth, start := 0, 0
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		depth++
		switch segment := string(path[start:i]); segment {
		case "":
			return Errorf(StatusBadRequest, "resource path %q has an empty segment; write it like api/tenant-a", path)
		case ".", "..":
			return Errorf(StatusBadRequest, "resource path %q has the segment %q; paths are not relative, write the whole path",
				path, segment)
		}
		start = i + 1
	}
	if depth > MaxLimitDepth {
		return Errorf(StatusBadRequest, "resource path %q has %d segments; at most %d are allowed", path, depth, MaxLimitDepth)
	}
	return nil
}
