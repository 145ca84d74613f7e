package main

import (
	"os"
	"regexp"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/signals"
	"monopod/node/stats"
)

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

// foreignText matches messages with a column: package manifests words them, and tests them.
var foreignText = regexp.MustCompile(`(\S+:\d+:\d+: (?:pod \S+: )?(?:[\w\[\].]+: )?)[^\n]+`)

// ownText leaves only place, pod and field of messages that are not ours.
func ownText(s string) string { return foreignText.ReplaceAllString(s, "$1...") }
