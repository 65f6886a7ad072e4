// Command lock holds a lock of signalbox with YDB's Go SDK. The argument is the connection string:
// grpc://127.0.0.1:2136/local.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ydb-platform/ydb-go-sdk/v3"
	"github.com/ydb-platform/ydb-go-sdk/v3/coordination"
	"github.com/ydb-platform/ydb-go-sdk/v3/coordination/options"
)

func main() {
	if err := lock(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func lock(ctx context.Context, connection string) error {
	db, err := ydb.Open(ctx, connection)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	if err := db.Coordination().CreateNode(ctx, "/local/demo", coordination.NodeConfig{}); err != nil {
		return err
	}
	session, err := db.Coordination().Session(ctx, "/local/demo")
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	lease, err := session.AcquireSemaphore(ctx, "backup", coordination.Exclusive, options.WithEphemeral(true))
	if err != nil {
		return err
	}
	defer lease.Release()
	fmt.Println("the lock is held") // work here, until lease.Context() ends
	return nil
}
