package meta

// Bounds of the map, part of format version 1.
const (
	MaxBuckets = 1 << 16 // of a tier: a session id has 16 bits for its home bucket
	MaxTiers   = 1 << 4  // a session id has 4 bits for its tier
	MaxShards  = 1 << 12
	MaxShardID = 1<<40 - 1 // the highest id of a data shard

	maxInstances = 1 << 12
	maxUUID      = 64
	maxReason    = 512
	maxMoves     = 1 << 10

	maxInstanceID        = 1 << 40
	maxReplicationFactor = 64
	maxWeight            = 1_000_000_000
	maxName              = 256
	maxGeneratedName     = maxName + 32 // of a generated name
	maxAddress           = 512
)
