package main

import (
	"os"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	if os.Getenv(actAsMonopod) != "" {
		actAsDaemon()
		return
	}
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// foreignText matches messages with a column: package manifests words them, and tests them.
var foreignText = regexp.MustCompile(`(\S+:\d+:\d+: (?:pod \S+: )?(?:[\w\[\].]+: )?)[^\n]+`)

// ownText leaves only place, pod and field of messages that are not ours.
func ownText(s string) string { return foreignText.ReplaceAllString(s, "$1...") }
