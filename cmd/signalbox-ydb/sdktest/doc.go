// Package sdktest tests the gateway with YDB's own SDKs and with raw gRPC, against real clusters.
// It is a module of its own, so that programs which build the gateway need the sums of neither
// YDB's SDK nor the server.
//
// Tests share one cluster of three instances unless they harm it. The others run in make full;
// SIGNALBOX_TEST=long (make long PART=modules) runs the long ones and prints the figures of the
// gateway's README.
package sdktest
