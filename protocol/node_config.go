package protocol

// AllFields has every bit of NodeConfig.Fields that this version knows.
const AllFields = FieldSelfCheckPeriod | FieldGracePeriod | FieldReadConsistency | FieldAttachConsistency | FieldCountersMode |
	FieldMaxSessions | FieldMaxSemaphores | FieldMaxBytes | FieldMaxWaiters | FieldMaxWatchers | FieldMaxRequests | FieldSlowWait |
	FieldMaxPriority | FieldForeign

// Default quotas of a coordination node. Requests have none.
const (
	DefaultMaxSessions   = 1_000_000
	DefaultMaxSemaphores = 1_000_000
	DefaultMaxBytes      = 4 << 30
	DefaultMaxWaiters    = 2_000_000 // a full queue of one semaphore, and most of another
	DefaultMaxWatchers   = 1_000_000
)

// HighestMaxRequests bounds the quota of requests a second.
const HighestMaxRequests = 10_000_000

// HighestSlowWait bounds the option slow-wait, in ms: a day.
const HighestSlowWait = 24 * 60 * 60 * 1000

// MaxForeignLen bounds the settings in another protocol's form, in bytes.
const MaxForeignLen = 256

// DefaultNodeConfig is the effective configuration of a node that was created without any.
func DefaultNodeConfig() NodeConfig {
	return NodeConfig{
		Fields:            AllFields,
		SelfCheckPeriod:   DefaultSelfCheckPeriod,
		GracePeriod:       DefaultGracePeriod,
		ReadConsistency:   Relaxed,
		AttachConsistency: Strict,
		CountersMode:      CountersAggregated,
		MaxSessions:       DefaultMaxSessions,
		MaxSemaphores:     DefaultMaxSemaphores,
		MaxBytes:          DefaultMaxBytes,
		MaxWaiters:        DefaultMaxWaiters,
		MaxWatchers:       DefaultMaxWatchers,
	}
}

// Merge is the effective configuration after an alter: fields that alter.Fields names are replaced,
// those given as zero go back to their default, the rest stays. n is the effective configuration
// before; a new node merges into DefaultNodeConfig. Errors are StatusBadRequest: a field out of its
// range, alone or together with the others, or a field this version does not know.
func (m NodeConfig) Merge(alter NodeConfig) (NodeConfig, error) {
	if unknown := alter.Fields &^ AllFields; unknown != 0 {
		return NodeConfig{}, Errorf(StatusBadRequest,
			"node config names fields unknown here (bits %#x); leave them out, or upgrade the server first", unknown)
	}
	base := DefaultNodeConfig()
	given := alter.Fields
	m.Fields = AllFields
	mergeField(&m.SelfCheckPeriod, given&FieldSelfCheckPeriod, alter.SelfCheckPeriod, base.SelfCheckPeriod)
	mergeField(&m.GracePeriod, given&FieldGracePeriod, alter.GracePeriod, base.GracePeriod)
	mergeField(&m.ReadConsistency, given&FieldReadConsistency, alter.ReadConsistency, base.ReadConsistency)
	mergeField(&m.AttachConsistency, given&FieldAttachConsistency, alter.AttachConsistency, base.AttachConsistency)
	mergeField(&m.CountersMode, given&FieldCountersMode, alter.CountersMode, base.CountersMode)
	mergeField(&m.MaxSessions, given&FieldMaxSessions, alter.MaxSessions, base.MaxSessions)
	mergeField(&m.MaxSemaphores, given&FieldMaxSemaphores, alter.MaxSemaphores, base.MaxSemaphores)
	mergeField(&m.MaxBytes, given&FieldMaxBytes, alter.MaxBytes, base.MaxBytes)
	mergeField(&m.MaxWaiters, given&FieldMaxWaiters, alter.MaxWaiters, base.MaxWaiters)
	mergeField(&m.MaxWatchers, given&FieldMaxWatchers, alter.MaxWatchers, base.MaxWatchers)
	mergeField(&m.MaxRequests, given&FieldMaxRequests, alter.MaxRequests, base.MaxRequests)
	mergeField(&m.SlowWait, given&FieldSlowWait, alter.SlowWait, base.SlowWait)
	mergeField(&m.MaxPriority, given&FieldMaxPriority, alter.MaxPriority, base.MaxPriority)
	mergeField(&m.Foreign, given&FieldForeign, alter.Foreign, base.Foreign)
	if err := m.Validate(); err != nil {
		return NodeConfig{}, err
	}
	return m, nil
}

// mergeField replaces a field if it is given; the zero value stands for the default.
func mergeField[T comparable](field *T, given uint32, value, def T) {
	var zero T
	switch {
	case given == 0:
	case value == zero:
		*field = def
	default:
		*field = value
	}
}

// Validate checks an effective configuration: every field in its range, and the grace period
// against the self-check period.
func (m *NodeConfig) Validate() error {
	if err := validateMillis("self-check period", m.SelfCheckPeriod, MinSelfCheckPeriod,
		MaxSelfCheckPeriod); err != nil {
		return err
	}
	if err := validateMillis("session grace period", m.GracePeriod, MinSelfCheckPeriod+MinGraceOverSelfCheck,
		MaxGracePeriod); err != nil {
		return err
	}
	switch {
	case m.GracePeriod < m.SelfCheckPeriod+MinGraceOverSelfCheck:
		return Errorf(StatusBadRequest,
			"session grace period is %d ms; with a self-check period of %d ms it must be at least %d ms",
			m.GracePeriod,
			m.SelfCheckPeriod, m.SelfCheckPeriod+MinGraceOverSelfCheck)
	case m.ReadConsistency != Strict && m.ReadConsistency != Relaxed:
		return Errorf(StatusBadRequest, "read consistency is %d; it must be 1 (strict) or 2 (relaxed)", m.ReadConsistency)
	case m.AttachConsistency != Strict && m.AttachConsistency != Relaxed:
		return Errorf(StatusBadRequest, "attach consistency is %d; it must be 1 (strict) or 2 (relaxed)",
			m.AttachConsistency)
	case m.CountersMode != CountersAggregated && m.CountersMode != CountersDetailed:
		return Errorf(StatusBadRequest, "counters mode is %d; it must be 1 (aggregated) or 2 (detailed)", m.CountersMode)
	case m.MaxSessions == 0:
		return Errorf(StatusBadRequest, "quota of sessions is 0; it must be at least 1")
	case m.MaxSemaphores == 0:
		return Errorf(StatusBadRequest, "quota of semaphores is 0; it must be at least 1")
	case m.MaxBytes == 0:
		return Errorf(StatusBadRequest, "quota of bytes is 0; it must be at least 1")
	case m.MaxWaiters == 0:
		return Errorf(StatusBadRequest, "quota of waiters is 0; it must be at least 1")
	case m.MaxWatchers == 0:
		return Errorf(StatusBadRequest, "quota of watchers is 0; it must be at least 1")
	case m.MaxRequests > HighestMaxRequests:
		return Errorf(StatusBadRequest, "quota of requests is %d a second; it must be 1 to %d, or 0 for no limit",
			m.MaxRequests, HighestMaxRequests)
	case m.SlowWait > HighestSlowWait:
		return Errorf(StatusBadRequest, "slow wait is %d ms; it must be at most %d ms, or 0 for off", m.SlowWait,
			HighestSlowWait)
	case m.MaxPriority != 0 && (m.MaxPriority < DefaultPriority || m.MaxPriority > MaxPriority):
		return Errorf(StatusBadRequest,
			"max priority is %d; it must be %d, which acquires have that name none, to %d, or 0 for any",
			m.MaxPriority, DefaultPriority, MaxPriority)
	case len(m.Foreign) > MaxForeignLen:
		return Errorf(StatusBadRequest, "foreign settings are %d bytes long; at most %d are allowed", len(m.Foreign),
			MaxForeignLen)
	}
	return nil
}
