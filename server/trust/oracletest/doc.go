// Package oracletest has go-oidc and go-spiffe judge the same tokens as server/trust. It is a
// nested module: its dependencies are nobody else's.
package oracletest
