module github.com/signalbox-dev/signalbox/server/trust/oracletest

go 1.26.0

require (
	github.com/coreos/go-oidc/v3 v3.21.0
	github.com/go-jose/go-jose/v4 v4.1.9
	github.com/signalbox-dev/signalbox v0.0.0
	github.com/spiffe/go-spiffe/v2 v2.9.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
)

replace github.com/signalbox-dev/signalbox => ../../..
