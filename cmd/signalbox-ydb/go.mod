module github.com/signalbox-dev/signalbox/cmd/signalbox-ydb

go 1.26.0

require (
	github.com/signalbox-dev/signalbox v0.0.0
	github.com/ydb-platform/ydb-go-genproto v0.0.0-20260810122915-65bfd5c4b705
	golang.org/x/net v0.61.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.83.2
	google.golang.org/protobuf v1.36.11
)

require github.com/cespare/xxhash/v2 v2.3.0 // indirect

// The protobufs' own go.mod is old: these resolve imports that two modules have.
require (
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260803160001-6ac0973c030d // indirect
)

replace github.com/signalbox-dev/signalbox => ../..
