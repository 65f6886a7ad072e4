package replica

import "testing"

// The engine's settings are found by their names, which another version may change silently.
func TestEngineHasTheSettingsOfItsEntryList(t *testing.T) {
	if engineEntryListLen <= entryListLen {
		t.Fatalf("the engine's list of entries had room for %d; look for the settings of engine_memory.go in this version of the engine",
			engineEntryListLen)
	}
}
