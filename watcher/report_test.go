package watcher

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"monopod/manifests"
)

// TestALineEndInANameIsNoReason: each joined error is one, and nothing that a name or a message contains.
func TestALineEndInANameIsNoReason(t *testing.T) {
	bad := &manifests.Error{File: "a\nfake.yaml", Line: 4, Msg: "unknown\nfield"}
	other := &manifests.Error{File: "b.yaml", Msg: "also bad"}
	got := Lines(fmt.Errorf("read: %w", errors.Join(bad, other)))
	if want := []string{`read: a\nfake.yaml:4: unknown\nfield`, "b.yaml: also bad"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Lines(nil); got != nil {
		t.Errorf("%q of no error", got)
	}
}
