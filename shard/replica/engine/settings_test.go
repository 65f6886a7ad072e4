package engine

import (
	"testing"

	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// The engine's settings are found by their names, which another version may change silently.
func TestEngineHasTheSettingsOfItsEntryList(t *testing.T) {
	if formerEntryListLen <= entryListLen {
		t.Fatalf("the engine's list of entries had room for %d; look for the settings of settings.go in this version of the engine",
			formerEntryListLen)
	}
}

func TestEngineHasTheSizeOfItsMessages(t *testing.T) {
	if formerMaxMessage <= maxMessage || maxMessage != logstore.MessageSize {
		t.Fatalf("the engine's messages had at most %d bytes, and have %d; look for the settings of settings.go in this version of the engine",
			formerMaxMessage, maxMessage)
	}
}
