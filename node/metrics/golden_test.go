package metrics

import (
	"log/slog"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod/internal/testfiles"
)

// TestTextOfEachPath compares all that is served, but for what differs between machines: dashboards and alerts depend on each name and label.
func TestTextOfEachPath(t *testing.T) {
	src, _ := sources(t)
	src.fill()
	machine := regexp.MustCompile(`(go_version="|machine_cpu_cores )[^"\n]+`)
	for where, h := range Handlers(src, slog.New(slog.DiscardHandler)) {
		var b strings.Builder
		for line := range strings.Lines(machine.ReplaceAllString(scrape(t, h), "${1}X")) {
			name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
			if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				b.WriteString(line)
			}
		}
		testfiles.Compare(t, filepath.Join("testdata", path.Base(where)+".txt"), b.String())
	}
}
