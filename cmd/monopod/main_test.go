package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"monopod/internal/signals"
	"monopod/node/stats"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	if os.Getenv(actAsMonopod) != "" {
		actAsDaemon()
		return
	}
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// mountedCgroups looks for them once: a machine that runs containers has many mounts, and tests make many agents.
var mountedCgroups = sync.OnceValues(stats.FindHierarchies)

// golden compares text with a file, or rewrites the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (rewrite with -update): -want +got:\n%s", file, diff)
	}
}

// foreignText matches messages with a column: package manifests words them, and tests them.
var foreignText = regexp.MustCompile(`(\S+:\d+:\d+: (?:pod \S+: )?(?:[\w\[\].]+: )?)[^\n]+`)

// ownText leaves only place, pod and field of messages that are not ours.
func ownText(s string) string { return foreignText.ReplaceAllString(s, "$1...") }
