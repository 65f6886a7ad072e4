// This file is empty. It lets the compiler take a function without a body, see dragonboat_store.go.
