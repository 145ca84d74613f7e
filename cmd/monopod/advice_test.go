package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod/internal/daemontest/clitest"
)

// adviceOf matches the commands in an answer's advice: in backquotes, after a colon or "Then:", up to the end of a phrase.
var adviceOf = regexp.MustCompile("\\bmonopod ((?:[a-z]+ ?)(?:[^`;,()\\n]*))")

// TestEachCommandThatWhyNamesExists parses each monopod command in the golden answers of package why.
func TestEachCommandThatWhyNamesExists(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../node/why/testdata/*.txt")
	if err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	found := map[string]bool{}
	for _, file := range files {
		for line := range strings.Lines(clitest.ReadFile(t, file)) {
			if strings.Contains(line, "ctr ") || strings.Contains(line, "crictl") || strings.Contains(line, "kubectl") {
				t.Errorf("%s names a program that may be missing: %s", file, line)
			}
			for _, m := range adviceOf.FindAllStringSubmatch(line, -1) {
				words := strings.Fields(m[1])
				p := newCommands()
				cmd, rest, err := p.root().Find(words)
				if err != nil || !cmd.HasParent() {
					if prose[words[0]] {
						continue
					}
					t.Errorf("%s: monopod %s: no such command", file, m[1])
					continue
				}
				found[cmd.Name()] = true
				if err := cmd.ParseFlags(rest); err != nil {
					t.Errorf("%s: monopod %s: %v", file, m[1], err)
				}
			}
		}
	}
	for _, name := range []string{"rm", "logs", "undrain", "rollback", "history", "validate", "delete", "why"} {
		if !found[name] {
			t.Errorf("no golden answer advises %s", name)
		}
	}
}

// prose are words that follow "monopod" in sentences.
var prose = map[string]bool{"does": true, "is": true, "ends": true, "started": true, "and": true, "so": true, "now": true, "runs": true, "because": true, "has": true, "itself": true, "running?": true, "had": true}
