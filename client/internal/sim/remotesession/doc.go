// Package remotesession checks the protocol between the home shard of a session and the shards that
// hold something for it. It visits every state of a model of it: three shards, messages lost,
// duplicated, delayed and reordered, leader changes, take-overs and bucket moves.
//
// The model is written apart from the code of the shards' leaders and says only what the protocol
// says; DESIGN.md lists its rules. Search visits all states within the bounds of a Scenario. A
// Fault removes one rule. The search must then find a state that must not be, and print how it
// came to be. All of it is test code.
package remotesession
