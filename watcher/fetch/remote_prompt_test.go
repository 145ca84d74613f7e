package fetch

import (
	"path/filepath"
	"testing"
	"time"

	"monopod/watcher/watchertest"
)

func TestARemoteSourceIsPromptWhenItHasACopy(t *testing.T) {
	c := NewCopy(filepath.Join(t.TempDir(), "sources", "web"))
	if r := NewRemote(RemoteConfig{Name: "web", Copy: c}); r.Prompt() {
		t.Error("prompt without a copy")
	}
	if r := NewRemote(RemoteConfig{Name: "web"}); r.Prompt() {
		t.Error("prompt without a place for a copy")
	}
	watchertest.Must(t, c.Save(&Kept{Body: []byte("x"), Stamp: Stamp{Received: time.Unix(0, 0)}}))
	if r := NewRemote(RemoteConfig{Name: "web", Copy: c}); !r.Prompt() {
		t.Error("not prompt with a copy")
	}
}
